// Kernels that run another one: that of a compiled program, say.
#pragma once

#include <memory>
#include <utility>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Puts a `Kernel`, made of the arguments and of the kernel that was there, in the place of
// `launch`.
template <typename Kernel, typename... Args>
absl::Status WrapKernel(tensorflow::FunctionLibraryRuntime* runtime,
                        const std::shared_ptr<const tensorflow::NodeProperties>& props,
                        std::unique_ptr<tensorflow::OpKernel>* launch, Args&&... args) {
  absl::Status status;
  tensorflow::Device* device = runtime->device();
  tensorflow::OpKernelConstruction construction(
      tensorflow::DeviceType(device->device_type()), device, device->GetAllocator({}), runtime,
      device->resource_manager(), props, (*launch)->input_memory_types(),
      (*launch)->output_memory_types(), runtime->graph_def_version(), &status);
  *launch =
      std::make_unique<Kernel>(&construction, std::forward<Args>(args)..., std::move(*launch));
  return status;
}

// Runs a kernel with other parameters than those of `ctx`, which gets its results.
inline absl::Status ComputeWith(tensorflow::OpKernelContext::Params params,
                                tensorflow::OpKernel* kernel, tensorflow::OpKernelContext* ctx) {
  params.op_kernel = kernel;
  tensorflow::OpKernelContext inner(&params, ctx->num_outputs());
  kernel->Compute(&inner);
  if (!inner.status().ok()) return inner.status();
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    const std::unique_ptr<tensorflow::Tensor> output(inner.release_output(i).tensor);
    if (output != nullptr) ctx->set_output(i, *output);
  }
  return absl::OkStatus();
}

}  // namespace hostcall
