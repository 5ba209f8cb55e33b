// Clusters that meet ever new signatures: what is not compiled any more runs by TensorFlow's
// kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "partitioned_function_kernel.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Wraps the kernel that launches a cluster: calls are counted, and those that shall not be compiled
// run by a call of the function itself. Where that might not compute the same, none does.
absl::Status BoundCompilations(tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               const std::string& function, bool calls_host,
                               std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
