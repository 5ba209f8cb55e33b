// The parts of the library for servers, which register themselves when it is loaded.
#pragma once

#include "xla/ffi/api/c_api.h"

namespace hostcall::serving {

// Register the kernels of script ops: those on the CPU, outside of compiled programs, and XLA's, by
// which an op becomes one custom call.
void RegisterPlainKernels();
void RegisterXlaKernels();

// Makes TensorFlow's kernels run the functions that XLA refuses, or whose order of calls it would
// lose. Has XLA compile the program that a saved graph has for a function, if any.
void InstallKernelCreator();

inline constexpr char kTarget[] = "hostcall_serving";

// Targets of the custom calls that find and raise errors of values (runtime/handler.h).
inline constexpr char kRaiseTarget[] = "hostcall_raise", kAnyTarget[] = "hostcall_any";

}  // namespace hostcall::serving

// Custom call target "hostcall_serving", FFI API 0.2, platform Host. Attributes:
//   op              string: the type of the script op
//   token           string: its token
//   argument_types  i32 array: TensorFlow's numbers of the operands' dtypes
//   result_types    i32 array: those of the results
// Operands and results: the function's own, and perhaps a token.
extern "C" XLA_FFI_Error* HostcallServingHandler(XLA_FFI_CallFrame* frame);
