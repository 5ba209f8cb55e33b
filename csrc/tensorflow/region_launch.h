// The kernel that launches a program with regions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "region.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Returns the node that calls `function`, the program with regions, in the place of the function of
// `props`. The program takes references for some of that function's arguments, and after all
// arguments the address of the launch's RegionScope.
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> RegionLaunchNode(
    const tensorflow::NodeProperties& props, const tensorflow::FunctionDef& function);

// Wraps `launch`, the kernel of that node, in one that takes the arguments of `props`.
// `regions` are the names of the regions, in the order of their indices.
absl::Status LaunchWithRegions(tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               const std::vector<std::string>& regions,
                               std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
