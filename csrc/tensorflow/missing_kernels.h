// Refusals that TensorFlow's registry of kernels predicts.
#pragma once

#include <string>

#include "tensorflow/core/framework/function.h"

namespace hostcall {

// Returns XLA's message if an op that it gets to see has no kernel for the device of the runtime;
// else "". Compiling the function would take long, and would leave a warning of TensorFlow's on the
// terminal.
std::string RefusalForMissingKernels(const tensorflow::FunctionLibraryRuntime& runtime,
                                     const std::string& function);

}  // namespace hostcall
