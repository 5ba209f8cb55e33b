#include "launch.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "buffer_provider.h"
#include "compat/contexts.h"
#include "interruptible_run.h"
#include "module.h"
#include "runtime/fork.h"
#include "runtime/gil.h"
#include "starters.h"
#include "tensorflow/core/common_runtime/device.h"
#include "unsupported/Eigen/CXX11/Tensor"

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

// Allocator that marks Eigen's device as ours. It allocates as that does without an allocator.
class Marker : public Eigen::Allocator {
 public:
  static Marker* Of(bool takes_turns) {
    static auto* markers = new Marker[2];
    return &markers[takes_turns];
  }

  void* allocate(size_t bytes) const override { return Eigen::internal::aligned_malloc(bytes); }
  void deallocate(void* buffer) const override { Eigen::internal::aligned_free(buffer); }
};

int64_t NumberOf(const Eigen::ThreadPoolDevice* threads) {
  return reinterpret_cast<int64_t>(threads);
}

// The device that the program of one launch seems to run on. It forwards to one of TensorFlow's.
class LaunchDevice : public tensorflow::Device {
 public:
  LaunchDevice(tensorflow::Device* device, const LaunchNeeds& needs)
      : Device(device->env(), device->attributes()),
        device_(device),
        shares_memory_(needs.shares_memory),
        threads_(device->eigen_cpu_device()->getPool(), device->eigen_cpu_device()->numThreads(),
                 Marker::Of(needs.takes_turns)) {}

  // Returns the number of the run that calls find by this device.
  int64_t run() const { return NumberOf(&threads_); }

  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes attributes) override {
    tensorflow::Allocator* allocator = device_->GetAllocator(attributes);
    return shares_memory_ ? BorrowableFrom(allocator) : allocator;
  }
  const CpuWorkerThreads* tensorflow_cpu_worker_threads() const override {
    return device_->tensorflow_cpu_worker_threads();
  }
  tsl::thread::ThreadPool* tensorflow_device_thread_pool() override {
    return device_->tensorflow_device_thread_pool();
  }
  bool has_eigen_cpu_device() const override { return device_->has_eigen_cpu_device(); }
  const Eigen::ThreadPoolDevice* eigen_cpu_device() override { return &threads_; }
  tensorflow::DeviceBase* UnderlyingDevice() override { return device_->UnderlyingDevice(); }
  const tensorflow::DeviceBase* UnderlyingDevice() const override {
    return device_->UnderlyingDevice();
  }
  absl::Status MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                   const tensorflow::AllocatorAttributes attributes,
                                   tensorflow::Tensor* tensor) override {
    return device_->MakeTensorFromProto(proto, attributes, tensor);
  }
  absl::Status TryGetDeviceContext(tensorflow::DeviceContext** context) override {
    return device_->TryGetDeviceContext(context);
  }
  absl::Status Sync() override { return device_->Sync(); }
  // Of a device with streams; XLA reads sizes that only the run knows on them.
  const AcceleratorDeviceInfo* tensorflow_accelerator_device_info() const override {
    return device_->tensorflow_accelerator_device_info();
  }

 private:
  tensorflow::Device* const device_;
  const bool shares_memory_;
  const Eigen::ThreadPoolDevice threads_;
};

// Devices for the launches of one kernel. A kernel whose launches do not overlap makes one.
class LaunchDevices {
 public:
  LaunchDevices(tensorflow::Device* device, const LaunchNeeds& needs)
      : device_(device), needs_(needs) {}

  // Returns a device that no other launch has, until it is given back.
  std::unique_ptr<LaunchDevice> Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<LaunchDevice> device = std::move(idle_.back());
        idle_.pop_back();
        return device;
      }
    }
    return std::make_unique<LaunchDevice>(device_, needs_);
  }

  void GiveBack(std::unique_ptr<LaunchDevice> device) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(device));
  }

 private:
  tensorflow::Device* const device_;
  const LaunchNeeds needs_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<LaunchDevice>> idle_;
};

// One launch of a program. A thread begins it, and it may end on another one.
class Launch {
 public:
  // `kernel` stands for the program. `devices` may be null, where no CPU runs programs.
  Launch(const void* kernel, const LaunchNeeds& needs, LaunchDevices* devices,
         tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done)
      : kernel_(kernel),
        needs_(needs),
        devices_(devices),
        ctx_(ctx),
        done_(std::move(done)),
        of_(StartedRunOf(*ctx)),
        outer_(innermost_) {}

  // Scope in which this thread launches the program, or compiles it for that.
  class OnThisThread {
   public:
    explicit OnThisThread(Launch* launch) : outer_(std::exchange(innermost_, launch)) {}
    ~OnThisThread() { innermost_ = outer_; }
    OnThisThread(const OnThisThread&) = delete;
    OnThisThread& operator=(const OnThisThread&) = delete;

   private:
    Launch* const outer_;
    const starters::Scope own_{nullptr};  // the calls start runs of their own
  };

  void Begin() {
    if (devices_ != nullptr) {
      if (needs_.shares_memory) inputs_.emplace(ctx_);
      device_ = devices_->Take();
      outer_device_ = std::exchange(ctx_->params()->device, device_.get());
      starters::Begin(device_->run(), starters::NumberOf(of_));
    }
    if (needs_.tracks_run) {
      begun_ = Runs::Global().Begin();
      with_early_calls_ = runtime->begin_run();
    }
  }

  // Must be called before the context is destroyed. Not a destructor: what owns this launch may
  // have been copied, and a copy may live on for a while.
  void End() {
    if (needs_.tracks_run) {
      runtime->end_run(with_early_calls_);
      DropBefore(Runs::Global().End(begun_));
    }
    if (device_ != nullptr) {
      starters::End(device_->run());
      ctx_->params()->device = outer_device_;
      devices_->GiveBack(std::move(device_));
    }
    const starters::Scope again(of_);
    inputs_.reset();
    done_();
  }

  // Returns the run that this thread launches a part of.
  static turns::Run RunOfThisThread() {
    if (innermost_ == nullptr || innermost_->of_ == nullptr) return {};
    return {innermost_->of_->number()};
  }

  // Returns what says that this thread compiles the program that it is launching, and calls a
  // Python function for that; null if it launches none.
  static bool* FoldsOfThisThread() { return innermost_ == nullptr ? nullptr : &innermost_->folds_; }

  // Returns true if this thread does so for the program of a kernel.
  static bool IsFolding(const void* kernel) {
    for (const Launch* one = innermost_; one != nullptr; one = one->outer_) {
      if (one->kernel_ == kernel && one->folds_) return true;
    }
    return false;
  }

 private:
  static inline thread_local Launch* innermost_ = nullptr;

  const void* const kernel_;
  const LaunchNeeds needs_;
  LaunchDevices* const devices_;
  tensorflow::OpKernelContext* const ctx_;
  const tensorflow::AsyncOpKernel::DoneCallback done_;
  const starters::StartedRun of_;  // the run that this is a part of, or null
  Launch* const outer_;            // that this thread was in
  bool folds_ = false;
  std::optional<BorrowableInputs> inputs_;
  std::unique_ptr<LaunchDevice> device_;
  tensorflow::DeviceBase* outer_device_ = nullptr;
  int64_t begun_ = 0;
  int64_t with_early_calls_ = 0;
};

class LaunchKernel : public tensorflow::AsyncOpKernel {
 public:
  LaunchKernel(tensorflow::OpKernelConstruction* construction, const LaunchNeeds& needs,
               std::unique_ptr<LaunchDevices> devices, KernelPtr launch)
      : AsyncOpKernel(construction),
        needs_(needs),
        devices_(std::move(devices)),
        launch_(std::move(launch)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    const absl::Status started = RunBesideTensorFlow([this, ctx, done] { Start(ctx, done); });
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
  }

 private:
  void Start(tensorflow::OpKernelContext* ctx, const DoneCallback& done) {
    OP_REQUIRES_ASYNC(ctx, !Launch::IsFolding(this),
                      absl::FailedPreconditionError(
                          "hostcall: a Python function with memo=, which was called while a "
                          "function was compiled that calls it, has called that function."),
                      done);
    const auto launch = std::make_shared<Launch>(this, needs_, devices_.get(), ctx, done);
    const Launch::OnThisThread scope(launch.get());
    launch->Begin();
    launch_->AsAsync()->ComputeAsync(ctx, [launch] { launch->End(); });
  }

  const LaunchNeeds needs_;
  const std::unique_ptr<LaunchDevices> devices_;
  const KernelPtr launch_;
};

}  // namespace

absl::Status LaunchWith(const LaunchNeeds& needs, const KernelRequest& request, KernelPtr* launch) {
  tensorflow::Device* device = request.runtime->device();
  const bool is_cpu = device->device_type() == tensorflow::DEVICE_CPU;
  LaunchNeeds met = needs;
  // Memory on other devices has its own allocators, whose devices XLA's kernel looks for.
  met.shares_memory = needs.shares_memory && is_cpu;
  std::unique_ptr<LaunchDevices> devices;
  if (is_cpu || device->device_type() == kXlaCpu) {
    devices = std::make_unique<LaunchDevices>(device, met);
  }
  return WrapKernel<LaunchKernel>(request, launch, met, std::move(devices));
}

turns::Run FindRun(XLA_FFI_ExecutionContext* context) {
  using Cpu = compat::HandlerContext::CpuContext;
  const Cpu* cpu = std::get_if<Cpu>(&compat::ContextOf(context)->backend_context);
  if (cpu == nullptr || cpu->intra_op_thread_pool == nullptr) return Launch::RunOfThisThread();
  const Eigen::Allocator* marker = cpu->intra_op_thread_pool->allocator();
  for (const bool takes_turns : {false, true}) {
    if (marker == Marker::Of(takes_turns)) {
      return {NumberOf(cpu->intra_op_thread_pool), takes_turns};
    }
  }
  return Launch::RunOfThisThread();
}

FoldScope::FoldScope() : folds_(Launch::FoldsOfThisThread()) {
  if (folds_ != nullptr) *folds_ = true;
}

FoldScope::~FoldScope() {
  if (folds_ != nullptr) *folds_ = false;
}

void DefineLaunches(nb::module_& m) {
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
