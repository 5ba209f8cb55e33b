#include "launch_scope.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/gil.h"
#include "wrapped_launch.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// The runs that have begun and not ended, by the moment of their beginning.
class Runs {
 public:
  // Leaked: XLA's threads may still end runs while the process exits.
  static Runs& Global() {
    static Runs* runs = new Runs();
    return *runs;
  }

  int64_t Begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.insert(++now_);
    return now_;
  }

  // Returns the moment before which nothing runs any more.
  int64_t End(int64_t begun) {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.erase(begun);
    return running_.empty() ? now_ + 1 : *running_.begin();
  }

  int64_t Now() {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }

 private:
  std::mutex mutex_;
  int64_t now_ = 0;
  std::set<int64_t> running_;
};

// Whether anything may be kept: most runs keep nothing, and need not ask Python.
std::atomic<bool> anything_kept{false};

nb::object& DropHook() {
  static auto* hook = new nb::object();  // leaked like all Python objects that C++ holds
  return *hook;
}

void DropBefore(int64_t moment) {
  if (!anything_kept.exchange(false)) return;
  if (!Py_IsInitialized()) return;
  GilHold gil;
  try {
    if (nb::cast<bool>(DropHook()(moment))) anything_kept = true;
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("hostcall: dropping what gradients have kept");
  }
}

using RunOnPool = void(std::function<void()>);
RunOnPool* run_on_pool = nullptr;

class ScopedLaunch : public tensorflow::AsyncOpKernel {
 public:
  ScopedLaunch(tensorflow::OpKernelConstruction* construction, bool keeps_states,
               std::unique_ptr<tensorflow::OpKernel> launch)
      : AsyncOpKernel(construction), keeps_states_(keeps_states), launch_(std::move(launch)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    // A thread that Python knows is the caller's own, or one of the pool's.
    if (PyGILState_GetThisThreadState() != nullptr) {
      Launch(ctx, std::move(done));
      return;
    }
    try {
      run_on_pool([this, ctx, done] { Launch(ctx, done); });
    } catch (const std::exception& error) {
      ctx->SetStatus(absl::ResourceExhaustedError(
          absl::StrCat("hostcall: no thread could be started for a compiled function with Python "
                       "callbacks: ",
                       error.what())));
      done();
    }
  }

 private:
  void Launch(tensorflow::OpKernelContext* ctx, DoneCallback done) {
    if (!keeps_states_) {
      launch_->AsAsync()->ComputeAsync(ctx, std::move(done));
      return;
    }
    const int64_t begun = Runs::Global().Begin();
    launch_->AsAsync()->ComputeAsync(ctx, [begun, done = std::move(done)] {
      DropBefore(Runs::Global().End(begun));
      done();
    });
  }

  const bool keeps_states_;
  const std::unique_ptr<tensorflow::OpKernel> launch_;
};

}  // namespace

absl::Status ScopeLaunch(bool keeps_states, tensorflow::FunctionLibraryRuntime* runtime,
                         const std::shared_ptr<const tensorflow::NodeProperties>& props,
                         std::unique_ptr<tensorflow::OpKernel>* launch) {
  return WrapLaunch<ScopedLaunch>(runtime, props, launch, keeps_states);
}

void DefineLaunchScope(nb::module_& m) {
  m.def(
      "set_pool",
      [](const nb::capsule& pool) { run_on_pool = reinterpret_cast<RunOnPool*>(pool.data()); },
      nb::arg("pool"), "Sets where programs run that TensorFlow starts on threads of its own.");
  m.def(
      "note_kept",
      [] {
        anything_kept = true;
        return Runs::Global().Now();
      },
      "To be called when something is kept until the running programs have ended: returns the "
      "moment.");
  m.def(
      "set_drop_hook", [](nb::object hook) { DropHook() = std::move(hook); }, nb::arg("hook"),
      "Sets the function that is told a moment before which nothing runs any more; it returns "
      "whether anything is still kept.");
}

}  // namespace hostcall
