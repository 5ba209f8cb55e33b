// Kernels that call functions; TensorFlow runs these functions with the kernels of their ops.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace hostcall {

// Returns a StatefulPartitionedCall of `function` that takes the inputs of `props` and returns its
// outputs. If `has_effects` (in Python), Grappler leaves the function as it is.
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> CallOf(
    const std::string& function, const tensorflow::NodeProperties& props, bool has_effects,
    bool sequential);

// Creates the kernel of a call that replaces a program and takes its values where a program does.
absl::Status CreateCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                              const std::shared_ptr<const tensorflow::NodeProperties>& call,
                              std::unique_ptr<tensorflow::OpKernel>* kernel);

// Creates the kernel of a call to a function without effects in Python and without clusters.
absl::Status CreatePlainCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                   const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                   const std::string& function,
                                   std::unique_ptr<tensorflow::OpKernel>* kernel);

// Creates TensorFlow's own CPU kernel for a node.
absl::Status CreateCpuKernel(tensorflow::FunctionLibraryRuntime* runtime,
                             const std::shared_ptr<const tensorflow::NodeProperties>& props,
                             std::unique_ptr<tensorflow::OpKernel>* kernel);

// Creates the kernel of a node that calls a function, inside one that TensorFlow's kernels run.
absl::Status CreateInnerCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                   const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                   std::unique_ptr<tensorflow::OpKernel>* kernel);

// Returns true if XLA can compile an op for devices of a type, by the op's name and attributes.
// Does not look into functions that the op calls.
bool HasXlaKernel(const tensorflow::NodeDef& node,
                  const std::string& device_type = tensorflow::DEVICE_CPU);

// Returns the positions of the operands whose values XLA needs at compile time.
std::vector<int> ConstantOperands(const tensorflow::NodeDef& node);

}  // namespace hostcall
