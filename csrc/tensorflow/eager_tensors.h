// EagerTensors for the runtime, which knows no TensorFlow.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// Defines the Python side: a capsule that the runtime's set_tensor_api takes.
void DefineEagerTensors(nanobind::module_& m);

}  // namespace hostcall
