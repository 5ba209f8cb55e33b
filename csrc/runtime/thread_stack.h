// Where another thread of Python's is.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// The frames of a thread and the lines that it has come to in them, the innermost first, as
// traceback.walk_stack gives them of the thread's own; none where it runs no Python.
nanobind::list StackOf(unsigned long thread);

}  // namespace hostcall
