// A GPU with a call's buffers in its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "arrays.h"
#include "cuda_driver.h"
#include "pinned_memory.h"

namespace hostcall {

// The device of a call, and the host memory in the place of its buffers. Small buffers share
// memory. It is pinned while there is room for that, otherwise ordinary memory. Call all members
// without the GIL; they throw Failure.
class CudaDevice {
 public:
  // A copy within the device's memory.
  struct Copy {
    void* to;
    const void* from;
    size_t size;
  };

  // Requires the context of the program to be current.
  explicit CudaDevice(CudaStream stream);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Makes the context of the program current: libraries take their device from it.
  void Activate() const { driver_->SetCurrentContext(context_); }

  // Gives each buffer from `first` on host memory with its values. Waits for everything that the
  // program has done so far, even without operands: a callback comes after everything before it.
  void Fetch(Buffers& operands, size_t first);

  // Gives each buffer from `first` on host memory, for values to be written.
  void Reserve(Buffers& results, size_t first = 0);

  // Copies the written values to the device, and waits for that.
  void Return();

  // Waits for the streams, makes all copies on the program's stream, does the same as `Return`, and
  // waits for all that.
  void Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams);

  const Place& place() const { return place_; }

  // Returns whether memory is this device's, as far as can be found out.
  bool Owns(const void* memory) const { return driver_->DeviceOf(memory) == place_.id; }

 private:
  struct Staged {
    void* device;
    void* host;
    size_t size;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  // Returns what is to be copied, in the order of the buffers.
  std::vector<Staged> Stage(Buffers& buffers, size_t first);
  void* Take(size_t size);
  void Finish();
  void Abandon() noexcept;

  const std::shared_ptr<const CudaDriver> driver_;
  const CudaContext context_;
  const CudaStream stream_;
  const Place place_;
  const std::shared_ptr<PinnedPool> pool_;
  std::vector<PinnedPool::Block> pinned_;
  std::vector<std::unique_ptr<void, Free>> ordinary_;
  std::vector<Staged> results_;
  bool copying_ = false;
};

}  // namespace hostcall
