// The custom call by which compiled programs call the functions of a saved graph.
#pragma once

#include "xla/ffi/api/c_api.h"

namespace hostcall::serving {

inline constexpr char kTarget[] = "hostcall_serving";

}  // namespace hostcall::serving

// Custom call target "hostcall_serving", FFI API 0.2, platform Host. Attributes:
//   op              string: the type of the script op
//   token           string: its token
//   argument_types  i32 array: TensorFlow's numbers of the operands' dtypes
//   result_types    i32 array: those of the results
// Operands and results: the function's own, and perhaps a token.
extern "C" XLA_FFI_Error* HostcallServingHandler(XLA_FFI_CallFrame* frame);
