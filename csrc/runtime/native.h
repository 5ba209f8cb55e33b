// Native code that compiled programs call: no GIL and no Python on the way.
#pragma once

#include <nanobind/nanobind.h>

#include "xla/ffi/api/c_api.h"

namespace hostcall {

// Defines the Python side of native code.
void DefineNative(nanobind::module_& m);

}  // namespace hostcall

// Custom call target "hostcall_native", FFI API 0.2, platform Host. Attribute:
//   callback  i64: the id of the function in the table
// Operands and results: the function's own, and perhaps a token. All have static shapes, and types
// with the memory layout that the function wants.
extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame);
