// Script ops of functions that are split: TensorFlow's own kernels, on threads of hostcall's.
//
// TensorFlow runs an op on one of its few inter-op threads. If callbacks held them all, one that
// itself runs a function would wait for ever.
#include "host_script_op.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "launch_scope.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "wrapped_launch.h"

namespace hostcall {
namespace {

// On a node: which of an op's kernels it wants.
constexpr char kLabel[] = "_kernel";

// A bit for each of the first inputs of the op that this thread runs: whether its memory is the
// op's alone, so that the function may write to it.
thread_local uint64_t lent_inputs = 0;
constexpr int kMaxLent = 64;

uint64_t InputsToLend(const tensorflow::OpKernelContext& ctx) {
  uint64_t lent = 0;
  for (int i = 0; i < ctx.num_inputs() && i < kMaxLent; ++i) {
    if (ctx.input(i).RefCountIsOne()) lent |= uint64_t{1} << i;
  }
  return lent;
}

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
    const absl::Status started = RunBesideTensorFlow([this, ctx, done] {
      Run(ctx);
      done();
    });
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
  }

 private:
  // In a context of its own, whose status can be told more precisely.
  void Run(tensorflow::OpKernelContext* ctx) {
    lent_inputs = InputsToLend(*ctx);
    const absl::Status status = ComputeWith(*ctx->params(), stock_.get(), ctx);
    if (!status.ok()) ctx->SetStatus(WithPreciseCode(status));
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

void DefineHostScriptOp(nanobind::module_& m) {
  m.def(
      "lent_inputs", [] { return lent_inputs; },
      "The inputs, by their bits, whose memory is only the op's that this thread has begun to "
      "run.");
}

}  // namespace hostcall
