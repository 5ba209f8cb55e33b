// TensorFlow's profiler for the runtime, which knows no TensorFlow.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// Defines the Python side: a capsule that the runtime's set_profiler_api takes.
void DefineProfiler(nanobind::module_& m);

}  // namespace hostcall
