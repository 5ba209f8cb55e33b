// The kernel of a partitioned function, which runs on the host with compiled clusters in it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

using MakeKernel = std::function<absl::Status(std::unique_ptr<tensorflow::OpKernel>*)>;

// The kernel of a StatefulPartitionedCall of `function`, which takes the inputs of `props` and
// returns its outputs. Users know it as `entry`. Where the function is marked as sequential, it
// runs on one thread, which may be the caller's own; unless it is given resources of another
// device, for which `on_several_devices` makes the kernel.
absl::Status CreatePartitionedFunctionKernel(
    tensorflow::FunctionLibraryRuntime* runtime,
    const std::shared_ptr<const tensorflow::NodeProperties>& props,
    const tensorflow::FunctionDef& function, const std::string& entry,
    MakeKernel on_several_devices, std::unique_ptr<tensorflow::OpKernel>* kernel);

// Whether a node in such a function calls another one, that has come out of the same partitioning.
bool IsInnerCall(const tensorflow::NodeDef& node);

}  // namespace hostcall
