// The kernel of a partitioned function, which runs on the host with compiled clusters in it.
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "functions/call_kernel.h"
#include "functions/partition_errors.h"
#include "functions/reachable.h"
#include "hostcall_attributes.h"
#include "interruptible_run.h"
#include "launch.h"
#include "starters.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/resource_handle.h"

namespace hostcall {

using tensorflow::NodeDef;

namespace {

// The last node that has failed on this thread, as TensorFlow writes it, for the call that ends
// there.
thread_local std::string failed_node;

class NotingKernel : public tensorflow::OpKernel {
 public:
  NotingKernel(tensorflow::OpKernelConstruction* construction, KernelPtr kernel)
      : OpKernel(construction), kernel_(std::move(kernel)) {}

  void Compute(tensorflow::OpKernelContext* ctx) override {
    kernel_->Compute(ctx);
    if (!ctx->status().ok()) failed_node = tensorflow::FormatNodeDefForError(kernel_->def());
  }

 private:
  const KernelPtr kernel_;
};

// Adds the name of the failed node to the error of a call that this thread has made.
absl::Status WithFailedNode(const absl::Status& status) {
  const std::string node = std::exchange(failed_node, "");
  if (node.empty() || absl::StrContains(status.message(), "{{node ")) return status;
  return tensorflow::errors::CreateWithUpdatedMessage(
      status, absl::StrCat(status.message(), "\n\t [[", node, "]]"));
}

// A call whose nodes run one after the other, on the calling thread.
class SequentialCall : public tensorflow::AsyncOpKernel {
 public:
  SequentialCall(tensorflow::OpKernelConstruction* construction, std::string function,
                 std::string entry, MakeKernel on_several_devices, KernelPtr call)
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
      failed_node.clear();
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
  const KernelPtr call_;
};

// A call whose nodes run on several devices, or on several threads.
class PartitionedCall : public tensorflow::AsyncOpKernel {
 public:
  PartitionedCall(tensorflow::OpKernelConstruction* construction, std::string function,
                  std::string entry, KernelPtr call)
      : AsyncOpKernel(construction),
        function_(std::move(function)),
        entry_(std::move(entry)),
        call_(std::move(call)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    tensorflow::OpKernelContext::Params params = ParamsOf(*ctx);
    auto run = std::make_unique<Run>();
    if (IsThreadOfPython() && params.runner != nullptr) {
      params.runner = run->interruptible.emplace(*params.runner).runner();
    }
    tensorflow::OpKernelContext* const inner =
        run->inner.emplace(params, ctx->num_outputs(), call_.get()).get();
    ComputeHolding(
        std::move(run), call_->AsAsync(), inner,
        [this, ctx](const auto& ended) {
          const absl::Status status = ended->inner->get()->status();
          ended->inner->HandOver(
              ctx, status.ok() ? status : InFunction(AsRaised(status, function_), entry_));
        },
        std::move(done));
  }

 private:
  struct Run {
    std::optional<InterruptibleRun> interruptible;
    // A separate context, whose status is not the one to show the user.
    std::optional<InnerContext> inner;
  };

  const std::string function_;
  const std::string entry_;
  const KernelPtr call_;
};

}  // namespace

absl::Status CreatePartitionedFunctionKernel(const KernelRequest& request,
                                             const tensorflow::FunctionDef& function,
                                             const std::string& entry,
                                             MakeKernel on_several_devices, KernelPtr* kernel) {
  const std::string& name = function.signature().name();
  const bool sequential = HasFlag(function, attributes::SEQUENTIAL);
  KernelRequest call = request;
  TF_ASSIGN_OR_RETURN(call.props, CallOf(name, request, /*has_effects=*/true, sequential));
  TF_RETURN_IF_ERROR(CreateCallKernel(call, kernel));
  if (!sequential) return WrapKernel<PartitionedCall>(call, kernel, name, entry);
  return WrapKernel<SequentialCall>(call, kernel, name, entry, std::move(on_several_devices));
}

bool IsInnerCall(const NodeDef& node) { return HasFlag(node, attributes::INNER_CALL); }

bool NotesErrors(const NodeDef& node) { return HasFlag(node, attributes::NOTES_ERRORS); }

absl::Status CreateNotingKernel(const KernelRequest& request, KernelPtr* kernel) {
  absl::Status created = CreateKernelFor(tensorflow::DEVICE_CPU, request, kernel);
  if (!created.ok() || (*kernel)->AsAsync() != nullptr) return created;
  return WrapKernel<NotingKernel>(request, kernel);
}

}  // namespace hostcall
