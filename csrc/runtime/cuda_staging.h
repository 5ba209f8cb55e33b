// Host memory in the place of a device's buffers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "arrays.h"
#include "cuda_driver.h"
#include "pinned_memory.h"

namespace hostcall {

// The copies from a device and back. Small buffers share memory. It is pinned while there is room
// for that, otherwise ordinary memory. Call all members without the GIL; they throw Failure.
class Staging {
 public:
  // Requires the context of the stream to be current.
  Staging(std::shared_ptr<const CudaDriver> driver, CudaContext context, CudaStream stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Gives each buffer from `first` on host memory with its values. Waits for everything that the
  // program has done so far, even without operands: a callback comes after everything before it.
  void Fetch(Buffers& operands, size_t first = 0);

  // Gives each buffer from `first` on host memory, for values to be written.
  void Reserve(Buffers& results, size_t first = 0);

  // Copies from one place on the device to another. `Return` waits for it.
  void CopyWithin(void* to, const void* from, size_t size);

  // Copies the written values to the device, and waits for that.
  void Return();

  // Waits for copies under way, after a failure.
  void Abandon() noexcept;

 private:
  struct Copy {
    void* device;
    void* host;
    size_t size;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  // Returns the copies in the order of the buffers.
  std::vector<Copy> Stage(Buffers& buffers, size_t first);
  void* Take(size_t size);
  void Finish();

  const std::shared_ptr<const CudaDriver> driver_;
  const CudaStream stream_;
  const std::shared_ptr<PinnedPool> pool_;
  std::vector<PinnedPool::Block> pinned_;
  std::vector<std::unique_ptr<void, Free>> ordinary_;
  std::vector<Copy> results_;
  bool copying_ = false;
};

}  // namespace hostcall
