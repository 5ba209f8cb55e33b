// Bound on the compilations of clusters that get ever new signatures: TensorFlow's kernels run
// calls that are not compiled.
#pragma once

#include <memory>
#include <string>

#include "functions/wrapped_kernel.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Wraps the kernel that launches a cluster: counts calls, and runs those that must not be compiled
// with the kernel of `make_plain`. If that might compute something else, compiles all calls.
absl::Status BoundCompilations(tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               const std::string& function, MakeKernel make_plain,
                               std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
