// Memory of the host's in the place of a device's buffers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "arrays.h"
#include "cuda_driver.h"
#include "pinned_memory.h"

namespace hostcall {

// Copies from a device and back. Buffers that are small share memory. It is pinned, as far as
// there is room for it, and ordinary memory else. All of it without the GIL; throws Failure.
class Staging {
 public:
  // The context of the stream is current.
  Staging(std::shared_ptr<const CudaDriver> driver, CudaContext context, CudaStream stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Has each buffer from `first` on lie in the host's memory, with its values. Waits for all that
  // the program has done so far, even where there are no operands: a callback comes after what
  // stands before it.
  void Fetch(Buffers& operands, size_t first = 0);

  // Has each buffer from `first` on lie in the host's memory, for values to be written.
  void Reserve(Buffers& results, size_t first = 0);

  // Copies from one place on the device to another. To be waited for, by `Return`.
  void CopyWithin(void* to, const void* from, size_t size);

  // Copies to the device what has been written, and waits for that.
  void Return();

  // Waits for copies that are under way, where something has failed.
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

  // In the order of the buffers.
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
