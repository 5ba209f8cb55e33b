// Host memory that a device copies from and to faster than other memory. It is kept from call to
// call, since pinning takes long.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_driver.h"

namespace hostcall {

// The pinned memory of one context. At most kMost bytes of it are pinned at a time, used or not.
// Unused memory is kept until the process ends, or until memory of another size needs the room:
// then the least recently used goes first. For any number of threads, without the GIL.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  static constexpr size_t kMost = size_t{256} << 20;

  class Return {
   public:
    Return() = default;
    Return(std::shared_ptr<PinnedPool> pool, size_t size) : pool_(std::move(pool)), size_(size) {}
    void operator()(void* data) const { pool_->Keep(data, size_); }

   private:
    std::shared_ptr<PinnedPool> pool_;
    size_t size_ = 0;
  };
  using Block = std::unique_ptr<void, Return>;

  // Returns the pool of a context, which must be current when memory is taken.
  static std::shared_ptr<PinnedPool> Of(const std::shared_ptr<const CudaDriver>& driver,
                                        CudaContext context);

  explicit PinnedPool(std::shared_ptr<const CudaDriver> driver);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Returns at least this many bytes, of arbitrary values. Returns null if there is no room for
  // them, or if the driver does not pin them.
  Block Take(size_t size);

 private:
  struct Idle {
    void* data;
    size_t size;
  };

  void Keep(void* data, size_t size);
  // Both need the mutex.
  void* TakeIdle(size_t size);
  bool MakeRoom(size_t size, std::vector<Idle>& unpinned);

  const std::shared_ptr<const CudaDriver> driver_;
  std::vector<Idle> idle_;  // the least recently used first
  size_t idle_size_ = 0;
  size_t used_size_ = 0;
};

}  // namespace hostcall
