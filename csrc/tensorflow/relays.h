// Handlers that were built with another version of XLA's FFI than TensorFlow's.
#pragma once

#include <nanobind/nanobind.h>

#include "xla/ffi/api/c_api.h"

namespace hostcall {

// Takes the text of an error, which it destroys; null if `error` is null.
nanobind::object TakeText(XLA_FFI_Error* error);

}  // namespace hostcall
