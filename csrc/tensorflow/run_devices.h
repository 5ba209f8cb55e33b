// Identification of the run that a custom call belongs to. TensorFlow gives XLA the same number for
// all runs. But it also passes on the threads of the device, in an object of Eigen's. So each run
// gets its own device, with its own Eigen object for the same threads, whose address is the run's
// number.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/host_api.h"
#include "tensorflow/core/common_runtime/device.h"

namespace hostcall {

// Devices of one kernel. A kernel whose runs do not overlap makes one.
class RunDevices {
 public:
  // Takes the device that all of them stand for; for `takes_turns` see turns::Run.
  RunDevices(tensorflow::Device* device, bool takes_turns)
      : device_(device), takes_turns_(takes_turns) {}

  // Returns a device that no other run has, until the run gives it back.
  std::unique_ptr<tensorflow::Device> Take();
  void GiveBack(std::unique_ptr<tensorflow::Device> device);

 private:
  tensorflow::Device* const device_;
  const bool takes_turns_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<tensorflow::Device>> idle_;
};

// Returns the run number that calls get in a run on this device, which `RunDevices` has made.
int64_t RunOn(tensorflow::Device* device);

// Finds the run of a call that TensorFlow's XLA makes.
turns::Run FindRun(XLA_FFI_ExecutionContext* context);

}  // namespace hostcall
