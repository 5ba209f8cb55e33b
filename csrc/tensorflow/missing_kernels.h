// What XLA will refuse a function for, known from TensorFlow's registry of kernels.
#pragma once

#include <string>

#include "tensorflow/core/framework/function.h"

namespace hostcall {

// What XLA would say of a function, in its words, if an op that it gets to see has no kernel for
// the device of the runtime; else "". To compile the function would take long, and would leave a
// warning of TensorFlow's on the terminal.
std::string RefusalForMissingKernels(const tensorflow::FunctionLibraryRuntime& runtime,
                                     const std::string& function);

}  // namespace hostcall
