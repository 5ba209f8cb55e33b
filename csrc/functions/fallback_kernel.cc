#include "fallback_kernel.h"

#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "partition_errors.h"
#include "tensorflow/core/framework/resource_mgr.h"

// The profiler's header includes XLA's builder for the name of this enumeration alone.
#define TENSORFLOW_COMPILER_JIT_XLA_COMPILE_UTIL_H_
namespace tensorflow {
enum class DeviceCompileMode;
}
#include "tensorflow/compiler/jit/device_compilation_profiler.h"

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::DeviceCompilationProfiler;
using tensorflow::OpKernelContext;

// TensorFlow's message before the name of the function that it cannot convert to a program.
constexpr char kNotConverted[] = "tf2xla conversion failed while converting ";

// Refusal without that name: the function takes a variable twice.
constexpr char kTakenTwice[] = "Duplicate variable passed to XLA cluster";

// Resource of a device in which XLA's launch counts its compilations.
constexpr char kProfiler[] = "device_compilation_profiler";

// Refusal without that name: a variable is on another device than the function.
constexpr char kElsewhere[] = "Trying to access resource ";

// Returns true if XLA has tried to compile a function and has no program of it for any shapes. Then
// nothing of it has run, and an error is from one of XLA's passes, which use many codes.
bool WasNeverCompiled(const OpKernelContext& ctx, const std::string& function) {
  DeviceCompilationProfiler* profiler = nullptr;
  tensorflow::ResourceMgr* resources = ctx.resource_manager();
  if (resources == nullptr ||
      !resources->Lookup(resources->default_container(), kProfiler, &profiler).ok()) {
    return false;
  }
  const tensorflow::core::ScopedUnref counted(profiler);
  tensorflow::NameAttrList name;
  name.set_name(function);
  const auto stats = profiler->GetCompileStats(name);
  return stats.ok() && stats->execution_count > 0 && stats->compile_count == 0;
}

class FallbackKernel : public AsyncOpKernel {
 public:
  FallbackKernel(tensorflow::OpKernelConstruction* construction, LaunchedFunction function,
                 MakeFallback make, std::function<void()> on_success, KernelPtr launch)
      : AsyncOpKernel(construction),
        function_(std::move(function)),
        fallback_(std::move(make)),
        on_success_(std::move(on_success)),
        launch_(std::move(launch)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    if (AsyncOpKernel* settled = settled_.load(std::memory_order_acquire)) {
      RunInside(settled, ctx, std::move(done));
      return;
    }
    // Use a separate context: a status cannot be taken back.
    auto attempt = std::make_shared<Attempt>(*ctx, launch_.get());
    const auto finish = [this, ctx, attempt, done = std::move(done)] {
      const absl::Status status = attempt->inner->get()->status();
      const bool is_refusal = !status.ok() && IsRefusal(*ctx, status);
      if (!is_refusal) {
        if (status.ok()) AnnounceOnce();
        HandOver(*attempt->inner, ctx);
      }
      attempt->inner.reset();
      if (is_refusal) {
        FallBack(ctx, status, done);
      } else {
        done();
      }
    };
    launch_->AsAsync()->ComputeAsync(attempt->inner->get(), [this, ctx, attempt, finish] {
      if (!attempt->IsSecond()) return;
      (*ctx->runner())(function_.elsewhere == nullptr ? finish : function_.elsewhere(finish));
    });
    if (attempt->IsSecond()) finish();
  }

 private:
  // Attempt to launch, which goes on when the launch has ended and its kernel has returned: until
  // then, the kernel may hold the locks of variables, for which the fallback would wait.
  struct Attempt {
    Attempt(OpKernelContext& outer, tensorflow::OpKernel* kernel) { inner.emplace(outer, kernel); }
    bool IsSecond() { return has_first.exchange(true); }

    std::optional<InnerContext> inner;  // null once it has ended
    std::atomic<bool> has_first{false};
  };

  void HandOver(InnerContext& inner, OpKernelContext* ctx) const {
    const absl::Status& status = inner.get()->status();
    if (function_.is_cluster) {
      ctx->SetStatus(WithOwnText(status));
    } else if (!status.ok() && !function_.regions.empty()) {
      ctx->SetStatus(InFunction(status, function_.entry));
    }
    if (ctx->status().ok()) inner.HandOver(ctx);
  }

  void AnnounceOnce() {
    if (on_success_ != nullptr && !is_announced_.exchange(true)) on_success_();
  }

  // A native callback's error may quote another function's refusal, but not this function's: it
  // makes no call before it is compiled.
  bool IsRefusal(const OpKernelContext& ctx, const absl::Status& status) const {
    const std::string_view message = status.message();
    if (absl::StrContains(message, "[hostcall error ")) return false;  // a callback's error
    if (absl::StartsWith(message, "hostcall")) return absl::IsUnimplemented(status);
    if (absl::StrContains(message, absl::StrCat(kNotConverted, function_.name, "["))) return true;
    if (absl::StartsWith(message, kTakenTwice) || absl::StartsWith(message, kElsewhere)) {
      return true;
    }
    if (WasNeverCompiled(ctx, function_.name)) return true;
    return !function_.calls_host &&
           (absl::IsInvalidArgument(status) || absl::IsUnimplemented(status));
  }

  void FallBack(OpKernelContext* ctx, const absl::Status& refusal, const DoneCallback& done) {
    const absl::StatusOr<AsyncOpKernel*> fallback = fallback_.Get(std::string(refusal.message()));
    OP_REQUIRES_OK_ASYNC(ctx, fallback.status(), done);
    OP_REQUIRES_OK_ASYNC(ctx, *fallback == nullptr ? refusal : absl::OkStatus(), done);
    RunInside(*fallback, ctx, [this, ctx, kernel = *fallback, done] {
      // Arguments that no kernel accepts say nothing about later calls.
      if (ctx->status().ok()) settled_.store(kernel, std::memory_order_release);
      done();
    });
  }

  const LaunchedFunction function_;
  LazyKernel<std::string> fallback_;
  const std::function<void()> on_success_;
  const KernelPtr launch_;
  std::atomic<AsyncOpKernel*> settled_{nullptr};  // the fallback, once it has worked
  std::atomic<bool> is_announced_{false};
};

}  // namespace

absl::Status FallBackOnRefusal(const KernelRequest& request, LaunchedFunction function,
                               MakeFallback make, std::function<void()> on_success,
                               KernelPtr* launch) {
  return WrapKernel<FallbackKernel>(request, launch, std::move(function), std::move(make),
                                    std::move(on_success));
}

}  // namespace hostcall
