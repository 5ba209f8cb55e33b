#include "pinned_memory.h"

#include <map>
#include <mutex>

#include "fork.h"

namespace hostcall {
namespace {

using Pools = std::map<CudaContext, std::shared_ptr<PinnedPool>>;

// The pools, and the mutex of all of them, which is never held while memory is pinned.
struct AllPools : HeldAcrossFork<AllPools> {
  using HeldAcrossFork<AllPools>::mutex_;

  std::shared_ptr<const CudaDriver> driver;
  Pools of;
};

std::mutex& Mutex() { return AllPools::Global().mutex_; }

constexpr size_t kLeast = size_t{1} << 16;

// Rounds up to few sizes, so that memory can be reused: four from each power of two to the next.
size_t RoundUp(size_t size) {
  size_t power = kLeast;
  while (power <= size / 2) power *= 2;
  const size_t step = power / 4;
  return size <= kLeast ? kLeast : (size + step - 1) / step * step;
}

}  // namespace

std::shared_ptr<PinnedPool> PinnedPool::Of(const std::shared_ptr<const CudaDriver>& driver,
                                           CudaContext context) {
  Pools other;  // the pools of a driver no longer in use, which end without the mutex
  std::lock_guard<std::mutex> lock(Mutex());
  AllPools& pools = AllPools::Global();
  if (pools.driver != driver) {
    pools.driver = driver;
    other.swap(pools.of);
  }
  std::shared_ptr<PinnedPool>& pool = pools.of[context];
  if (pool == nullptr) pool = std::make_shared<PinnedPool>(driver);
  return pool;
}

PinnedPool::PinnedPool(std::shared_ptr<const CudaDriver> driver) : driver_(std::move(driver)) {
  idle_.reserve(kMost / kLeast);  // the most that can exist: keeping memory must not fail
}

PinnedPool::~PinnedPool() {
  for (const Idle& idle : idle_) driver_->Unpin(idle.data);
}

PinnedPool::Block PinnedPool::Take(size_t size) {
  if (size > kMost) return {};
  size = RoundUp(size);
  std::vector<Idle> unpinned;
  {
    std::lock_guard<std::mutex> lock(Mutex());
    if (void* data = TakeIdle(size); data != nullptr) return {data, {shared_from_this(), size}};
    if (!MakeRoom(size, unpinned)) return {};
    used_size_ += size;
  }
  for (const Idle& idle : unpinned) driver_->Unpin(idle.data);
  void* data = driver_->Pin(size);
  if (data != nullptr) return {data, {shared_from_this(), size}};
  std::lock_guard<std::mutex> lock(Mutex());
  used_size_ -= size;
  return {};
}

void PinnedPool::Keep(void* data, size_t size) {
  std::lock_guard<std::mutex> lock(Mutex());
  idle_.push_back({data, size});
  idle_size_ += size;
  used_size_ -= size;
}

void* PinnedPool::TakeIdle(size_t size) {
  for (size_t i = idle_.size(); i-- > 0;) {
    if (idle_[i].size != size) continue;
    void* data = idle_[i].data;
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    idle_size_ -= size;
    used_size_ += size;
    return data;
  }
  return nullptr;
}

bool PinnedPool::MakeRoom(size_t size, std::vector<Idle>& unpinned) {
  if (used_size_ + size > kMost) return false;
  size_t count = 0;
  while (used_size_ + idle_size_ + size > kMost) idle_size_ -= idle_[count++].size;
  const auto end = idle_.begin() + static_cast<std::ptrdiff_t>(count);
  unpinned.assign(idle_.begin(), end);
  idle_.erase(idle_.begin(), end);
  return true;
}

}  // namespace hostcall
