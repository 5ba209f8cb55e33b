// 32-bit integers in the memory of a device.
//
// On a GPU, TensorFlow's functions take and return them in host memory, since most of them are
// shapes and indices. Programs have them on the device, like all other values.
#pragma once

#include <memory>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Makes the kernel of a function call take and return these integers where a program does.
absl::Status TakeIntegersOnDevice(tensorflow::FunctionLibraryRuntime* runtime,
                                  const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                  std::unique_ptr<tensorflow::OpKernel>* call);

}  // namespace hostcall
