// Script ops of functions that are split: TensorFlow's own kernels, on threads of hostcall's.
//
// TensorFlow runs an op on one of its few inter-op threads. If callbacks held them all, one that
// itself runs a function would wait for ever.
#include <Python.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "launch_scope.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {
namespace {

// On a node: which of an op's kernels it wants.
constexpr char kLabel[] = "_kernel";

class HostScriptOp : public tensorflow::AsyncOpKernel {
 public:
  explicit HostScriptOp(tensorflow::OpKernelConstruction* construction)
      : AsyncOpKernel(construction) {
    tensorflow::NodeDef node = def();
    node.mutable_attr()->erase(kLabel);
    std::shared_ptr<const tensorflow::NodeProperties> props;
    OP_REQUIRES_OK(construction, tensorflow::NodeProperties::CreateFromNodeDef(
                                     std::move(node), tensorflow::OpRegistry::Global(), &props));
    // Where constants are folded there is no function library, and no device but its base.
    tensorflow::DeviceBase* device = construction->device();
    tensorflow::OpKernel* stock = nullptr;
    OP_REQUIRES_OK(construction,
                   tensorflow::CreateOpKernel(
                       construction->device_type(), device, device->GetAllocator({}),
                       construction->function_library(), construction->resource_manager(), props,
                       construction->graph_def_version(), &stock));
    stock_.reset(stock);
  }

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    // A thread that Python knows is the caller's own, or one of the pool's.
    if (PyGILState_GetThisThreadState() != nullptr) {
      Run(ctx);
      done();
      return;
    }
    const absl::Status started = RunBesideTensorFlow([this, ctx, done] {
      Run(ctx);
      done();
    });
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
  }

 private:
  // In a context of its own, whose status can be told more precisely.
  void Run(tensorflow::OpKernelContext* ctx) {
    tensorflow::OpKernelContext::Params params = *ctx->params();
    params.op_kernel = stock_.get();
    tensorflow::OpKernelContext inner(&params, ctx->num_outputs());
    stock_->Compute(&inner);
    if (!inner.status().ok()) {
      ctx->SetStatus(WithPreciseCode(inner.status()));
      return;
    }
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      const std::unique_ptr<tensorflow::Tensor> output(inner.release_output(i).tensor);
      if (output != nullptr) ctx->set_output(i, *output);
    }
  }

  // TensorFlow has no code of its own for a callback that overran its time.
  static absl::Status WithPreciseCode(const absl::Status& status) {
    if (!absl::StartsWith(status.message(), "DeadlineExceededError:")) return status;
    return absl::DeadlineExceededError(status.message());
  }

  std::unique_ptr<tensorflow::OpKernel> stock_;
};

#define HOSTCALL_REGISTER(op) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU).Label("hostcall"), HostScriptOp)
HOSTCALL_REGISTER("EagerPyFunc");
HOSTCALL_REGISTER("PyFunc");
HOSTCALL_REGISTER("PyFuncStateless");
#undef HOSTCALL_REGISTER

}  // namespace
}  // namespace hostcall
