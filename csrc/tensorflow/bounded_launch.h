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
// run by the kernel that `make_plain` makes. Where that might not compute the same, none does.
absl::Status BoundCompilations(tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               const std::string& function, MakeKernel make_plain,
                               std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
