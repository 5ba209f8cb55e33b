// The kernel of a partitioned function, which runs on the host with compiled clusters in it.
#pragma once

#include <string>

#include "functions/wrapped_kernel.h"

namespace hostcall {

// Creates the kernel of a StatefulPartitionedCall of `function`, which takes the inputs of the
// requested node and returns its outputs. Users know it as `entry`. A function marked as sequential
// runs on one thread, which may be the caller's own. If it gets resources of another device, the
// kernel that `on_several_devices` makes runs instead.
absl::Status CreatePartitionedFunctionKernel(const KernelRequest& request,
                                             const tensorflow::FunctionDef& function,
                                             const std::string& entry,
                                             MakeKernel on_several_devices, KernelPtr* kernel);

// Returns true if a node of a partitioned function calls another of the same partitioning.
bool IsInnerCall(const tensorflow::NodeDef& node);

// Returns true if a node's kernel must note its failure: the executor that runs a function's nodes
// one after the other returns a kernel's error as it is, without the name of the node.
bool NotesErrors(const tensorflow::NodeDef& node);

// Creates the kernel of that node.
absl::Status CreateNotingKernel(const KernelRequest& request, KernelPtr* kernel);

}  // namespace hostcall
