// The stack of another Python thread.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// Returns the frames of a thread with their current lines, innermost first, as traceback.walk_stack
// does for the calling thread. Returns an empty list if the thread runs no Python.
nanobind::list StackOf(unsigned long thread);

}  // namespace hostcall
