// Kernels of partitioned functions, and wrappers of the kernel that launches a program, each for
// one thing that a launch needs.
#pragma once

#include <string>
#include <vector>

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

// Wraps the kernel that launches a program in one that runs it on copies of its variables
// (variable_copies.cc). A program that takes no variables keeps its kernel.
absl::Status RunOnCopies(const KernelRequest& request, KernelPtr* launch);

// Returns the node that calls `function`, a program with regions, in the place of the function of
// `props`. The program takes references for some of that function's arguments, and after all
// arguments the address of the launch's RegionScope.
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> RegionLaunchNode(
    const tensorflow::NodeProperties& props, const tensorflow::FunctionDef& function);

// Wraps the kernel of that node in one that takes the arguments of the request's node. `regions`
// are the names of the regions, in the order of their indices.
absl::Status LaunchWithRegions(const KernelRequest& request,
                               const std::vector<std::string>& regions, KernelPtr* launch);

// Wraps the kernel that launches a cluster: counts calls, and runs those that must not be compiled,
// as the cluster gets ever new signatures, with the kernel of `make_plain`. If that might compute
// something else, compiles all calls.
absl::Status BoundCompilations(const KernelRequest& request, MakeKernel make_plain,
                               KernelPtr* launch);

}  // namespace hostcall
