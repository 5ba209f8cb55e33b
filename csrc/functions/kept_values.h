// Values of variables that a program which fails must not lose.
#pragma once

#include <utility>
#include <vector>

#include "tensorflow/core/framework/types.h"
#include "wrapped_kernel.h"

namespace hostcall {

// Wraps the kernel that launches a program in one that keeps the values of its variables until the
// program has ended, so that a program that fails assigns none. A program that takes no variables
// keeps its kernel.
absl::Status KeepValues(const KernelRequest& request, KernelPtr* launch);

// Wraps the kernel that launches a program in a `Kernel`, which gets the positions of the inputs
// that are variables. A program that takes none keeps its kernel.
template <typename Kernel>
absl::Status WrapForVariables(const KernelRequest& request, KernelPtr* launch) {
  std::vector<int> resources;
  for (int i = 0; i < (*launch)->num_inputs(); ++i) {
    if ((*launch)->input_type(i) == tensorflow::DT_RESOURCE) resources.push_back(i);
  }
  if (resources.empty()) return absl::OkStatus();
  return WrapKernel<Kernel>(request, launch, std::move(resources));
}

}  // namespace hostcall
