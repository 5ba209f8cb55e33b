// Kernels that run another kernel, for example that of a compiled program.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace hostcall {

using KernelPtr = std::unique_ptr<tensorflow::OpKernel>;

// A node that a kernel is to be made for, and the runtime of the function that the node is in.
struct KernelRequest {
  tensorflow::FunctionLibraryRuntime* runtime;
  std::shared_ptr<const tensorflow::NodeProperties> props;

  const tensorflow::FunctionLibraryDefinition& library() const {
    return *runtime->GetFunctionLibraryDefinition();
  }
};

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
                               const KernelRequest& request, KernelPtr* launch, Args&&... args) {
  absl::Status status;
  tensorflow::Device* device = request.runtime->device();
  tensorflow::OpKernelConstruction construction(
      tensorflow::DeviceType(device->device_type()), device, device->GetAllocator({}),
      request.runtime, device->resource_manager(), request.props, inputs, outputs,
      request.runtime->graph_def_version(), &status);
  *launch =
      std::make_unique<Kernel>(&construction, std::forward<Args>(args)..., std::move(*launch));
  return status;
}

// Does the same with the memory types of the old kernel, except for strings.
template <typename Kernel, typename... Args>
absl::Status WrapKernel(const KernelRequest& request, KernelPtr* launch, Args&&... args) {
  tensorflow::MemoryTypeVector inputs = (*launch)->input_memory_types();
  inputs.resize(request.props->input_types.size());  // the inner kernel may take more
  inputs = WithStringsOnHost(std::move(inputs), request.props->input_types);
  const tensorflow::MemoryTypeVector outputs =
      WithStringsOnHost((*launch)->output_memory_types(), request.props->output_types);
  return WrapKernelBetween<Kernel>(inputs, outputs, request, launch, std::forward<Args>(args)...);
}

// Creates TensorFlow's own kernel for a node that has one of hostcall's, by its label. Constant
// folding has no function library, and of the device only its base. A `token` takes the place of
// the node's, unless it is empty.
inline absl::Status CreateStockKernel(tensorflow::OpKernelConstruction* labelled, KernelPtr* stock,
                                      const std::string& token = "") {
  tensorflow::NodeDef node = labelled->def();
  node.mutable_attr()->erase("_kernel");
  if (!token.empty()) (*node.mutable_attr())["token"].set_s(token);
  tensorflow::DeviceBase* device = labelled->device();
  absl::Status status;
  *stock = tensorflow::CreateOpKernel(labelled->device_type(), device, device->GetAllocator({}),
                                      node, labelled->graph_def_version(), &status);
  return status;
}

// Copies the parameters of a context, for the context of another kernel.
inline tensorflow::OpKernelContext::Params ParamsOf(const tensorflow::OpKernelContext& ctx) {
  tensorflow::OpKernelContext::Params params =
      *const_cast<tensorflow::OpKernelContext&>(ctx).params();
  params.eigen_gpu_device = nullptr;  // owned by the other params; a context makes a new one
  return params;
}

// Context in which a kernel runs instead of the one that `outer` is for.
class InnerContext {
 public:
  InnerContext(const tensorflow::OpKernelContext::Params& params, int outputs,
               tensorflow::OpKernel* kernel)
      : params_(params), context_(&ForKernel(params_, kernel), outputs) {}
  InnerContext(tensorflow::OpKernelContext& outer, tensorflow::OpKernel* kernel)
      : InnerContext(ParamsOf(outer), outer.num_outputs(), kernel) {}
  InnerContext(const InnerContext&) = delete;
  InnerContext& operator=(const InnerContext&) = delete;

  tensorflow::OpKernelContext* get() { return &context_; }

  // Moves the status or the outputs to `outer`.
  void HandOver(tensorflow::OpKernelContext* outer) { HandOver(outer, context_.status()); }

  // Does the same with another status than the context's own.
  void HandOver(tensorflow::OpKernelContext* outer, const absl::Status& status) {
    if (!status.ok()) {
      outer->SetStatus(status);
      return;
    }
    for (int i = 0; i < outer->num_outputs(); ++i) {
      const std::unique_ptr<tensorflow::Tensor> output(context_.release_output(i).tensor);
      if (output != nullptr) outer->set_output(i, std::move(*output));
    }
  }

 private:
  static tensorflow::OpKernelContext::Params& ForKernel(tensorflow::OpKernelContext::Params& params,
                                                        tensorflow::OpKernel* kernel) {
    params.op_kernel = kernel;
    return params;
  }

  tensorflow::OpKernelContext::Params params_;
  tensorflow::OpKernelContext context_;
};

// Runs a kernel in `ctx`. Then calls `finish` with what the run held, frees that, and calls `done`.
// Not what a capture of the callback does: a copy of it may live on for a while after `done`, when
// a session that closes destroys the devices and resources of the tensors in it.
template <typename Held, typename Finish>
void ComputeHolding(Held held, tensorflow::AsyncOpKernel* kernel, tensorflow::OpKernelContext* ctx,
                    Finish finish, tensorflow::AsyncOpKernel::DoneCallback done) {
  auto shared = std::make_shared<std::optional<Held>>(std::move(held));
  kernel->ComputeAsync(
      ctx, [shared = std::move(shared), finish = std::move(finish), done = std::move(done)] {
        finish(**shared);
        shared->reset();
        done();
      });
}

// Runs a kernel in a context of its own, since kernels look up inputs by the names in their own op,
// and gives `ctx` the status or the outputs.
inline void RunInside(tensorflow::AsyncOpKernel* kernel, tensorflow::OpKernelContext* ctx,
                      tensorflow::AsyncOpKernel::DoneCallback done) {
  auto inner = std::make_unique<InnerContext>(*ctx, kernel);
  tensorflow::OpKernelContext* const context = inner->get();
  ComputeHolding(
      std::move(inner), kernel, context, [ctx](const auto& run) { run->HandOver(ctx); },
      std::move(done));
}

// A kernel that is made, with some arguments, when it is first needed. The maker may make none.
template <typename... Args>
class LazyKernel {
 public:
  using Make = std::function<absl::Status(Args..., KernelPtr*)>;

  explicit LazyKernel(Make make) : make_(std::move(make)) {}

  bool can_make() const { return make_ != nullptr; }

  // Returns the kernel, or null.
  absl::StatusOr<tensorflow::AsyncOpKernel*> Get(const Args&... args) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (kernel_ == nullptr) TF_RETURN_IF_ERROR(make_(args..., &kernel_));
    return kernel_ == nullptr ? nullptr : kernel_->AsAsync();
  }

 private:
  const Make make_;
  std::mutex mutex_;
  KernelPtr kernel_;  // set once
};

using MakeKernel = LazyKernel<>::Make;

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
