// Calls of workers with TensorFlow's tensors.
#pragma once

#include "callee.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall::serving {

// Has a worker call a Python function with the inputs of a kernel, and sets the kernel's outputs.
absl::Status CallWorkerWith(const Callee& callee, tensorflow::OpKernelContext* ctx);

}  // namespace hostcall::serving
