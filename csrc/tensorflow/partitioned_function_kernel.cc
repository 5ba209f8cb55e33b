#include "partitioned_function_kernel.h"

#include <functional>
#include <string>
#include <utility>

#include "functions/call_kernel.h"
#include "functions/partition_errors.h"
#include "functions/reachable.h"
#include "hostcall_attributes.h"
#include "interruptible_run.h"
#include "named_errors.h"
#include "run_tracking.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/resource_handle.h"

namespace hostcall {

using tensorflow::NodeDef;
using tensorflow::NodeProperties;

namespace {

// A call whose nodes run one after the other, on the calling thread.
class SequentialCall : public tensorflow::AsyncOpKernel {
 public:
  SequentialCall(tensorflow::OpKernelConstruction* construction, std::string function,
                 std::string entry, MakeKernel on_several_devices,
                 std::unique_ptr<tensorflow::OpKernel> call)
      : AsyncOpKernel(construction),
        function_(std::move(function)),
        entry_(std::move(entry)),
        on_several_devices_(std::move(on_several_devices)),
        call_(std::move(call)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    if (TakesResourcesFromElsewhere(*ctx)) {
      const absl::StatusOr<AsyncOpKernel*> other = on_several_devices_.Get();
      OP_REQUIRES_OK_ASYNC(ctx, other.status(), done);
      (*other)->ComputeAsync(ctx, std::move(done));
      return;
    }
    const absl::Status started = RunBesideTensorFlow([this, ctx, done] {
      static auto* inline_runner = new std::function<void(std::function<void()>)>(
          [](const std::function<void()>& task) { task(); });
      tensorflow::OpKernelContext::Params params = ParamsOf(*ctx);
      params.runner = inline_runner;
      params.run_all_kernels_inline = true;  // tells loops that they must not recurse
      ForgetFailedNode();
      const absl::Status status = ComputeWith(params, call_.get(), ctx);
      if (!status.ok()) {
        ctx->SetStatus(InFunction(WithFailedNode(AsRaised(status, function_)), entry_));
      }
      done();
    });
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
  }

 private:
  static bool TakesResourcesFromElsewhere(const tensorflow::OpKernelContext& ctx) {
    const std::string& here = ctx.device()->attributes().name();
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (ctx.input_dtype(i) != tensorflow::DT_RESOURCE) continue;
      const auto handles = ctx.input(i).flat<tensorflow::ResourceHandle>();
      for (int64_t j = 0; j < handles.size(); ++j) {
        if (handles(j).device() != here) return true;
      }
    }
    return false;
  }

  const std::string function_;
  const std::string entry_;  // the function as users know it
  LazyKernel<> on_several_devices_;
  const std::unique_ptr<tensorflow::OpKernel> call_;
};

// A call whose nodes run on several devices, or on several threads.
class PartitionedCall : public tensorflow::AsyncOpKernel {
 public:
  PartitionedCall(tensorflow::OpKernelConstruction* construction, std::string function,
                  std::string entry, std::unique_ptr<tensorflow::OpKernel> call)
      : AsyncOpKernel(construction),
        function_(std::move(function)),
        entry_(std::move(entry)),
        call_(std::move(call)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    tensorflow::OpKernelContext::Params params = ParamsOf(*ctx);
    std::shared_ptr<InterruptibleRun> run;
    if (IsThreadOfPython() && params.runner != nullptr) {
      run = std::make_shared<InterruptibleRun>(*params.runner);
      params.runner = run->runner();
    }
    // Use a separate context, whose status is not the one to show the user.
    auto inner = std::make_shared<InnerContext>(params, ctx->num_outputs(), call_.get());
    call_->AsAsync()->ComputeAsync(inner->get(), [this, ctx, inner, run, done = std::move(done)] {
      const absl::Status status = inner->get()->status();
      if (status.ok()) {
        inner->HandOver(ctx);
      } else {
        ctx->SetStatus(InFunction(AsRaised(status, function_), entry_));
      }
      done();
    });
  }

 private:
  const std::string function_;
  const std::string entry_;
  const std::unique_ptr<tensorflow::OpKernel> call_;
};

}  // namespace

absl::Status CreatePartitionedFunctionKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                             const std::shared_ptr<const NodeProperties>& props,
                                             const tensorflow::FunctionDef& function,
                                             const std::string& entry,
                                             MakeKernel on_several_devices,
                                             std::unique_ptr<tensorflow::OpKernel>* kernel) {
  const std::string& name = function.signature().name();
  const bool sequential = HasFlag(function, attributes::SEQUENTIAL);
  const auto call = CallOf(name, *props, /*has_effects=*/true, sequential);
  if (!call.ok()) return call.status();
  absl::Status status = CreateCallKernel(runtime, *call, kernel);
  if (!status.ok()) return status;
  if (!sequential) return WrapKernel<PartitionedCall>(runtime, *call, kernel, name, entry);
  return WrapKernel<SequentialCall>(runtime, *call, kernel, name, entry,
                                    std::move(on_several_devices));
}

bool IsInnerCall(const NodeDef& node) { return HasFlag(node, attributes::INNER_CALL); }

}  // namespace hostcall
