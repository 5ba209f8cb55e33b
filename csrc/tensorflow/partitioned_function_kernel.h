// The kernel of a partitioned function, which runs on the host with compiled clusters in it.
#pragma once

#include <memory>
#include <string>

#include "functions/wrapped_kernel.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Creates the kernel of a StatefulPartitionedCall of `function`, which takes the inputs of `props`
// and returns its outputs. Users know it as `entry`. A function marked as sequential runs on one
// thread, which may be the caller's own. If it gets resources of another device, the kernel that
// `on_several_devices` makes runs instead.
absl::Status CreatePartitionedFunctionKernel(
    tensorflow::FunctionLibraryRuntime* runtime,
    const std::shared_ptr<const tensorflow::NodeProperties>& props,
    const tensorflow::FunctionDef& function, const std::string& entry,
    MakeKernel on_several_devices, std::unique_ptr<tensorflow::OpKernel>* kernel);

// Returns true if a node of a partitioned function calls another of the same partitioning.
bool IsInnerCall(const tensorflow::NodeDef& node);

}  // namespace hostcall
