// Kernels of calls of functions, which TensorFlow runs by the kernels of their ops.
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

// A StatefulPartitionedCall of a function, which takes the inputs of `props` and returns its
// outputs. With effects in Python, Grappler leaves the function as it is.
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> CallOf(
    const std::string& function, const tensorflow::NodeProperties& props, bool has_effects,
    bool sequential);

// The kernel of such a call in the place of a program, whose values it takes where a program does.
absl::Status CreateCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                              const std::shared_ptr<const tensorflow::NodeProperties>& call,
                              std::unique_ptr<tensorflow::OpKernel>* kernel);

// The kernel of a call of a function that has no effects in Python, and no clusters.
absl::Status CreatePlainCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                   const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                   const std::string& function,
                                   std::unique_ptr<tensorflow::OpKernel>* kernel);

// TensorFlow's own kernel of a node for a CPU.
absl::Status CreateCpuKernel(tensorflow::FunctionLibraryRuntime* runtime,
                             const std::shared_ptr<const tensorflow::NodeProperties>& props,
                             std::unique_ptr<tensorflow::OpKernel>* kernel);

// The kernel of a node that calls a function, from within one that TensorFlow's kernels run.
absl::Status CreateInnerCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                   const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                   std::unique_ptr<tensorflow::OpKernel>* kernel);

// Whether XLA can compile an op for devices of a type, by its name and attributes. For an op that
// calls functions it says nothing of those.
bool HasXlaKernel(const tensorflow::NodeDef& node,
                  const std::string& device_type = tensorflow::DEVICE_CPU);

// The operands of an op, by their positions, that XLA wants to know when it compiles.
std::vector<int> ConstantOperands(const tensorflow::NodeDef& node);

}  // namespace hostcall
