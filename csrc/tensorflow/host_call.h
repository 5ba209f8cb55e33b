// A function that runs on the host, in the place of one that would have been compiled whole.
#pragma once

#include <memory>
#include <string>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// The kernel of a StatefulPartitionedCall of `function`, which takes the inputs of `props` and
// returns its outputs.
absl::Status CreateHostCall(tensorflow::FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const tensorflow::NodeProperties>& props,
                            const std::string& function,
                            std::unique_ptr<tensorflow::OpKernel>* kernel);

// Whether XLA can compile an op, by its name and attributes. For an op that calls functions it says
// nothing of those.
bool HasXlaKernel(tensorflow::NodeDef node);

}  // namespace hostcall
