// Kernels that call functions; TensorFlow runs these functions with the kernels of their ops.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/types.h"
#include "wrapped_kernel.h"

namespace hostcall {

// Returns the function that a node calls: in `f` of a PartitionedCall, or an eager call's op.
const std::string& CalledFunction(const tensorflow::NodeDef& node);

// Returns the node with another function to call.
tensorflow::NodeDef WithCalledFunction(tensorflow::NodeDef node, const std::string& function);

// Returns a StatefulPartitionedCall of `function` in the place of a node. `call` may have inputs
// and further attributes.
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> CallInPlaceOf(
    const tensorflow::NodeDef& replaced, const tensorflow::NameAttrList& function,
    const tensorflow::DataTypeVector& inputs, const tensorflow::DataTypeVector& outputs,
    tensorflow::NodeDef call);

// Returns a StatefulPartitionedCall of `function` that takes the inputs of the requested kernel and
// returns its outputs. If `has_effects` (in Python), Grappler leaves the function as it is. The
// kernel has streams of random numbers of its own.
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> CallOf(
    const std::string& function, const KernelRequest& request, bool has_effects, bool sequential);

// Creates the kernel of a call that replaces a program and takes its values where a program does.
absl::Status CreateCallKernel(const KernelRequest& call, KernelPtr* kernel);

// Creates the kernel of a call to a function without effects in Python and without clusters.
absl::Status CreatePlainCallKernel(const KernelRequest& request, const std::string& function,
                                   KernelPtr* kernel);

// Creates TensorFlow's own kernel for a node, on devices of a type. The runtime of a function
// within a graph does not create one.
absl::Status CreateKernelFor(const std::string& device_type, const KernelRequest& request,
                             KernelPtr* kernel);

// Creates the kernel of a node that calls a function, inside one that TensorFlow's kernels run.
absl::Status CreateInnerCallKernel(const KernelRequest& request, KernelPtr* kernel);

// Returns true if an op has a kernel for devices of a type.
bool HasKernel(tensorflow::NodeDef node, const tensorflow::DeviceType& device);

// Returns true if XLA can compile an op for devices of a type, by the op's name and attributes.
// Does not look into functions that the op calls.
bool HasXlaKernel(const tensorflow::NodeDef& node,
                  const std::string& device_type = tensorflow::DEVICE_CPU);

// Returns the positions of the operands whose values XLA needs at compile time.
std::vector<int> ConstantOperands(const tensorflow::NodeDef& node);

}  // namespace hostcall
