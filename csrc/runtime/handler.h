// The typed-FFI handlers, through which XLA enters the runtime.
#pragma once

#include "xla/ffi/api/ffi.h"

// Custom call target "hostcall", FFI API 0.2, platform Host. Attributes:
//   callback          i64: the id of the callback in the registry
//   dynamic_operands  array<i64>: pairs (operand, dimension), one for each bounded dimension
//   dynamic_results   array<i64>: the same for the results
//   sub_byte_operands   array<i64>: pairs (operand, element type), where the callback sees a type
//                     narrower than the buffer's: XLA packs int4, two in a byte, so that it is
//                     passed as int8
//   sub_byte_results    array<i64>: the same for the results
// Operands: the callback's own, then an int32 true size for each pair of `dynamic_operands`, then
// perhaps a token. Results: likewise.
extern "C" XLA_FFI_Error* HostcallHandler(XLA_FFI_CallFrame* frame);

// Does the same for platform CUDA, with the buffers in the memory of the device (cuda.cc). XLA must
// not record it in a CUDA graph, which would run without calling it again: it has no traits.
extern "C" XLA_FFI_Error* HostcallCudaHandler(XLA_FFI_CallFrame* frame);
