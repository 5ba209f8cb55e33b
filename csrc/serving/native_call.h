// Calls of native code by TensorFlow's kernels, outside of compiled programs.
#pragma once

#include "callee.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall::serving {

// Calls native code with the inputs of a kernel, and sets its outputs.
absl::Status CallNative(const Callee& callee, tensorflow::OpKernelContext* ctx);

}  // namespace hostcall::serving
