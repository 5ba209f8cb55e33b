#include "run_tracking.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "buffer_provider.h"
#include "current_launch.h"
#include "interruptible_run.h"
#include "module.h"
#include "run_devices.h"
#include "runtime/fork.h"
#include "runtime/gil.h"
#include "starters.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// XLA's own header for this name takes long to compile.
constexpr char kXlaCpu[] = "XLA_CPU";

// Runs that have begun and not ended, by the moment of their beginning.
class Runs : public HeldAcrossFork<Runs> {
 public:
  int64_t Begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.insert(++now_);
    return now_;
  }

  // Returns a moment: all runs that began before it have ended.
  int64_t End(int64_t begun) {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.erase(begun);
    return running_.empty() ? now_ + 1 : *running_.begin();
  }

  int64_t Now() {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }

  // Returns true if a run that had begun by the moment has not ended.
  bool WasRunning(int64_t moment) {
    std::lock_guard<std::mutex> lock(mutex_);
    return !running_.empty() && *running_.begin() <= moment;
  }

 private:
  int64_t now_ = 0;
  std::set<int64_t> running_;
};

// Tape residuals that only the programs which run now can ask for, by handle. All members except
// `empty` need the GIL. They run no Python code of ours: a signal's handler would run in the middle
// of it, and its exception would be lost.
class TapeResiduals {
 public:
  // Returns true if no residual is kept. Most runs keep none, and need no GIL to find that out.
  bool empty() const { return empty_; }

  void SetTable(nb::dict table) { table_ = std::move(table); }

  void Add(int64_t handle) {
    handles_.emplace_back(Runs::Global().Now(), handle);
    empty_ = false;
  }

  void DropBefore(int64_t moment) {
    while (!handles_.empty() && handles_.front().first < moment) {
      const int64_t handle = handles_.front().second;
      handles_.pop_front();  // first: dropping may let other threads in
      Drop(handle);
    }
    empty_ = handles_.empty();
  }

 private:
  void Drop(int64_t handle) {
    UntilExit([this, handle] {
      PyObject* key = PyLong_FromLongLong(handle);
      if (key == nullptr || PyDict_DelItem(table_.ptr(), key) < 0) PyErr_Clear();
      Py_XDECREF(key);
    });
  }

  nb::object table_;
  std::deque<std::pair<int64_t, int64_t>> handles_;  // moments of keeping, in order, and handles
  std::atomic<bool> empty_{true};
};

// Leaked like all that holds Python objects.
TapeResiduals& residuals = *new TapeResiduals();

void DropBefore(int64_t moment) {
  if (residuals.empty() || !PythonIsRunning()) return;
  GilHold gil;
  residuals.DropBefore(moment);
}

// TensorFlow's functions that tell and change whether tapes record on a thread. Leaked like all
// that holds Python objects.
struct Recording {
  nb::object is_stopped;
  nb::object resume;
  nb::object stop;
  nb::object has_no_tapes;
};
Recording& recording = *new Recording();

// Scope in which callbacks may run on a thread that Python knows.
//
// TensorFlow stops recording on a user's thread while it runs a function. A tape inside a callback
// would record nothing, and the gradient would silently be zero. If recording is resumed, the
// user's own tapes would note the variables that callbacks read. So a program under those tapes has
// to run on another thread, which has none.
class CallbackThread {
 public:
  CallbackThread() {
    if (!PythonIsRunning()) return;
    GilHold gil;
    if (!Ask(recording.is_stopped)) return;
    Ask(recording.resume);
    resumed_ = Ask(recording.has_no_tapes);
    fits_ = resumed_;
    if (!fits_) Ask(recording.stop);
  }
  ~CallbackThread() {
    if (!resumed_ || !PythonIsRunning()) return;
    GilHold gil;
    Ask(recording.stop);
  }
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  bool fits() const { return fits_; }

 private:
  static bool Ask(const nb::object& function) {
    PyObject* answer = UntilExit([&] { return PyObject_CallNoArgs(function.ptr()); });
    if (answer == nullptr) PyErr_WriteUnraisable(function.ptr());
    Py_XDECREF(answer);  // a bool or None, which are never freed
    return answer == Py_True;
  }

  bool resumed_ = false;
  bool fits_ = true;
};

// What the runs of a program need.
struct Needs {
  bool tracks_run;
  std::unique_ptr<tensorflow::Device> provider_device;  // null if no memory is shared
  std::unique_ptr<RunDevices> run_devices;              // null unless a CPU runs programs
};

// A run of a program, which a thread launches and which may end on another one. It begins when it
// is made.
class TrackedRun {
 public:
  // `of` is the run that it is a part of, or null.
  TrackedRun(tensorflow::OpKernelContext* ctx, const Needs& needs, starters::StartedRun of,
             tensorflow::AsyncOpKernel::DoneCallback done)
      : ctx_(ctx), needs_(needs), of_(std::move(of)), done_(std::move(done)) {
    if (needs_.provider_device != nullptr) borrowing_.emplace(ctx, needs_.provider_device.get());
    if (needs_.run_devices != nullptr) {
      device_ = needs_.run_devices->Take();
      outer_device_ = std::exchange(ctx->params()->device, device_.get());
      starters::Begin(RunOn(device_.get()), starters::NumberOf(of_));
    }
    if (needs_.tracks_run) {
      begun_ = Runs::Global().Begin();
      with_early_calls_ = runtime->begin_run();
    }
  }

  // Must be called before the context is destroyed, for the same reason as that of BorrowingRun.
  void End() {
    if (needs_.tracks_run) {
      runtime->end_run(with_early_calls_);
      DropBefore(Runs::Global().End(begun_));
    }
    if (device_ != nullptr) {
      starters::End(RunOn(device_.get()));
      ctx_->params()->device = outer_device_;
      needs_.run_devices->GiveBack(std::move(device_));
    }
    const starters::Scope again(of_);
    if (borrowing_.has_value()) borrowing_->End();
    done_();
  }

 private:
  tensorflow::OpKernelContext* const ctx_;
  const Needs& needs_;
  const starters::StartedRun of_;
  const tensorflow::AsyncOpKernel::DoneCallback done_;
  std::optional<BorrowingRun> borrowing_;
  std::unique_ptr<tensorflow::Device> device_;
  tensorflow::DeviceBase* outer_device_ = nullptr;
  int64_t begun_ = 0;
  int64_t with_early_calls_ = 0;
};

class TrackedKernel : public tensorflow::AsyncOpKernel {
 public:
  TrackedKernel(tensorflow::OpKernelConstruction* construction, Needs needs, KernelPtr launch)
      : AsyncOpKernel(construction), needs_(std::move(needs)), launch_(std::move(launch)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    const absl::Status started = RunBesideTensorFlow([this, ctx, done] { Launch(ctx, done); });
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
  }

 private:
  void Launch(tensorflow::OpKernelContext* ctx, DoneCallback done) {
    OP_REQUIRES_ASYNC(ctx, !CurrentLaunch::IsFolding(this),
                      absl::FailedPreconditionError(
                          "hostcall: a Python function with memo=, which was called while a "
                          "function was compiled that calls it, has called that function."),
                      done);
    const starters::StartedRun of = StartedRunOf(*ctx);
    const CurrentLaunch launching(this, starters::NumberOf(of));
    const starters::Scope own(nullptr);  // the calls start runs of their own
    const auto run = std::make_shared<TrackedRun>(ctx, needs_, of, std::move(done));
    launch_->AsAsync()->ComputeAsync(ctx, [run] { run->End(); });
  }

  const Needs needs_;
  const KernelPtr launch_;
};

}  // namespace

absl::Status RunBesideTensorFlow(std::function<void()> task) {
  // A thread that Python knows is the caller's own, or one of the pool's.
  if (IsThreadOfPython()) {
    const CallbackThread thread;
    if (thread.fits()) {
      task();
      return absl::OkStatus();
    }
  }
  try {
    runtime->run_on_pool(starters::OfItsStarter(std::move(task)));
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "hostcall: no thread could be started for a compiled function with Python callbacks: ",
        error.what()));
  }
}

absl::Status TrackRuns(const RunTracking& scope, const KernelRequest& request, KernelPtr* launch) {
  // Memory on other devices has its own allocators, whose devices XLA's kernel looks for.
  tensorflow::Device* device = request.runtime->device();
  const bool is_cpu = device->device_type() == tensorflow::DEVICE_CPU;
  Needs needs{scope.tracks_run, nullptr, nullptr};
  if (is_cpu && scope.shares_memory) needs.provider_device = MakeProviderDevice(device);
  if (is_cpu || device->device_type() == kXlaCpu) {
    // A run needs both: the device for taking turns forwards to the one for allocating.
    tensorflow::Device* inner =
        needs.provider_device == nullptr ? device : needs.provider_device.get();
    needs.run_devices = std::make_unique<RunDevices>(inner, scope.takes_turns);
  }
  return WrapKernel<TrackedKernel>(request, launch, std::move(needs));
}

void DefineRunTracking(nb::module_& m) {
  m.def(
      "set_recording",
      [](nb::object is_stopped, nb::object resume, nb::object stop, nb::object has_no_tapes) {
        recording = Recording{std::move(is_stopped), std::move(resume), std::move(stop),
                              std::move(has_no_tapes)};
      },
      nb::arg("is_stopped"), nb::arg("resume"), nb::arg("stop"), nb::arg("has_no_tapes"),
      "Set TensorFlow's functions that tell and change whether tapes record on this thread.");
  m.def(
      "set_table", [](nb::dict table) { residuals.SetTable(std::move(table)); }, nb::arg("table"),
      "Set the dict that `drop_after_run` removes from.");
  m.def(
      "now", [] { return Runs::Global().Now(); },
      "Return the time of a clock that advances with each run of a program with kept values.");
  m.def(
      "was_running", [](int64_t moment) { return Runs::Global().WasRunning(moment); },
      nb::arg("moment"), "Return whether a program that ran at that time still runs.");
  m.def(
      "drop_after_run", [](int64_t handle) { residuals.Add(handle); }, nb::arg("handle"),
      "Remove a handle from the table when the programs that run now have ended.");
}

}  // namespace hostcall
