#include "run_devices.h"

#define EIGEN_USE_THREADS

#include <utility>
#include <variant>

#include "compat/contexts.h"
#include "current_launch.h"
#include "forwarding_device.h"
#include "starters.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace hostcall {
namespace {

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

class RunDevice : public ForwardingDevice {
 public:
  RunDevice(tensorflow::Device* device, bool takes_turns)
      : ForwardingDevice(device),
        threads_(device->eigen_cpu_device()->getPool(), device->eigen_cpu_device()->numThreads(),
                 Marker::Of(takes_turns)) {}

  const Eigen::ThreadPoolDevice* eigen_cpu_device() override { return &threads_; }

 private:
  const Eigen::ThreadPoolDevice threads_;
};

int64_t NumberOf(const Eigen::ThreadPoolDevice* threads) {
  return reinterpret_cast<int64_t>(threads);
}

// Returns the run that this thread launches a part of. A program for a GPU makes its calls on the
// thread that launches it.
turns::Run RunOfLaunch() {
  const int64_t run = CurrentLaunch::Run();
  return run == starters::kNoRun ? turns::Run{} : turns::Run{run};
}

}  // namespace

std::unique_ptr<tensorflow::Device> RunDevices::Take() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<tensorflow::Device> device = std::move(idle_.back());
      idle_.pop_back();
      return device;
    }
  }
  return std::make_unique<RunDevice>(device_, takes_turns_);
}

void RunDevices::GiveBack(std::unique_ptr<tensorflow::Device> device) {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(device));
}

int64_t RunOn(tensorflow::Device* device) { return NumberOf(device->eigen_cpu_device()); }

turns::Run FindRun(XLA_FFI_ExecutionContext* context) {
  using Cpu = compat::HandlerContext::CpuContext;
  const Cpu* cpu = std::get_if<Cpu>(&compat::ContextOf(context)->backend_context);
  if (cpu == nullptr || cpu->intra_op_thread_pool == nullptr) return RunOfLaunch();
  const Eigen::Allocator* marker = cpu->intra_op_thread_pool->allocator();
  for (const bool takes_turns : {false, true}) {
    if (marker == Marker::Of(takes_turns)) {
      return {NumberOf(cpu->intra_op_thread_pool), takes_turns};
    }
  }
  return RunOfLaunch();
}

}  // namespace hostcall
