// Kernels that run another kernel, for example that of a compiled program.
#pragma once

#include <memory>
#include <utility>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Moves strings to the host. A program's kernel has all types on the device, even strings, which a
// program never has. A replacement of the program may have them.
inline tensorflow::MemoryTypeVector WithStringsOnHost(tensorflow::MemoryTypeVector memory,
                                                      const tensorflow::DataTypeVector& types) {
  for (size_t i = 0; i < memory.size() && i < types.size(); ++i) {
    if (tensorflow::DataTypeAlwaysOnHost(types[i])) memory[i] = tensorflow::HOST_MEMORY;
  }
  return memory;
}

// Replaces `launch` with a `Kernel` made from the arguments and the old kernel. It takes and
// returns values where `inputs` and `outputs` say.
template <typename Kernel, typename... Args>
absl::Status WrapKernelBetween(const tensorflow::MemoryTypeVector& inputs,
                               const tensorflow::MemoryTypeVector& outputs,
                               tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               std::unique_ptr<tensorflow::OpKernel>* launch, Args&&... args) {
  absl::Status status;
  tensorflow::Device* device = runtime->device();
  tensorflow::OpKernelConstruction construction(
      tensorflow::DeviceType(device->device_type()), device, device->GetAllocator({}), runtime,
      device->resource_manager(), props, inputs, outputs, runtime->graph_def_version(), &status);
  *launch =
      std::make_unique<Kernel>(&construction, std::forward<Args>(args)..., std::move(*launch));
  return status;
}

// Does the same with the memory types of the old kernel, except for strings.
template <typename Kernel, typename... Args>
absl::Status WrapKernel(tensorflow::FunctionLibraryRuntime* runtime,
                        const std::shared_ptr<const tensorflow::NodeProperties>& props,
                        std::unique_ptr<tensorflow::OpKernel>* launch, Args&&... args) {
  tensorflow::MemoryTypeVector inputs = (*launch)->input_memory_types();
  inputs.resize(props->input_types.size());  // the inner kernel may take more
  inputs = WithStringsOnHost(std::move(inputs), props->input_types);
  const tensorflow::MemoryTypeVector outputs =
      WithStringsOnHost((*launch)->output_memory_types(), props->output_types);
  return WrapKernelBetween<Kernel>(inputs, outputs, runtime, props, launch,
                                   std::forward<Args>(args)...);
}

// Context in which a kernel runs instead of the one that `outer` is for.
class InnerContext {
 public:
  InnerContext(const tensorflow::OpKernelContext::Params& params, int outputs,
               tensorflow::OpKernel* kernel)
      : params_(ForKernel(params, kernel)), context_(&params_, outputs) {}
  InnerContext(tensorflow::OpKernelContext& outer, tensorflow::OpKernel* kernel)
      : InnerContext(*outer.params(), outer.num_outputs(), kernel) {}
  InnerContext(const InnerContext&) = delete;
  InnerContext& operator=(const InnerContext&) = delete;

  tensorflow::OpKernelContext* get() { return &context_; }

  // Moves the status or the outputs to `outer`.
  void HandOver(tensorflow::OpKernelContext* outer) {
    if (!context_.status().ok()) {
      outer->SetStatus(context_.status());
      return;
    }
    for (int i = 0; i < outer->num_outputs(); ++i) {
      const std::unique_ptr<tensorflow::Tensor> output(context_.release_output(i).tensor);
      if (output != nullptr) outer->set_output(i, std::move(*output));
    }
  }

 private:
  static tensorflow::OpKernelContext::Params ForKernel(tensorflow::OpKernelContext::Params params,
                                                       tensorflow::OpKernel* kernel) {
    params.op_kernel = kernel;
    params.eigen_gpu_device = nullptr;  // owned by the params; the context makes a new one
    return params;
  }

  tensorflow::OpKernelContext::Params params_;
  tensorflow::OpKernelContext context_;
};

// Runs a kernel with other parameters than those of `ctx`, and gives `ctx` the results.
inline absl::Status ComputeWith(const tensorflow::OpKernelContext::Params& params,
                                tensorflow::OpKernel* kernel, tensorflow::OpKernelContext* ctx) {
  InnerContext inner(params, ctx->num_outputs(), kernel);
  kernel->Compute(inner.get());
  if (!inner.get()->status().ok()) return inner.get()->status();
  inner.HandOver(ctx);
  return absl::OkStatus();
}

}  // namespace hostcall
