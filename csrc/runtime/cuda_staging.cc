#include "cuda_staging.h"

#include <string>
#include <utility>

#include "failure.h"
#include "pages.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Smaller buffers share memory.
constexpr size_t kWorthOwnMemory = size_t{1} << 16;
// No dtype needs more, and no two buffers share a cache line.
constexpr size_t kAlignment = 64;

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Staging::Staging(std::shared_ptr<const CudaDriver> driver, CudaContext context, CudaStream stream)
    : driver_(std::move(driver)), stream_(stream), pool_(PinnedPool::Of(driver_, context)) {}

// Waits: after a failure, copies may still be under way into memory that others get now.
Staging::~Staging() { Abandon(); }

void Staging::Fetch(Buffers& operands, size_t first) {
  copying_ = true;
  for (const Copy& copy : Stage(operands, first)) {
    if (copy.size > 0) driver_->CopyToHost(copy.host, copy.device, copy.size, stream_);
  }
  Finish();
}

void Staging::Reserve(Buffers& results, size_t first) {
  for (const Copy& copy : Stage(results, first)) results_.push_back(copy);
}

void Staging::CopyWithin(void* to, const void* from, size_t size) {
  copying_ = true;
  driver_->CopyWithin(to, from, size, stream_);
}

void Staging::Return() {
  copying_ = true;
  for (const Copy& copy : results_) {
    if (copy.size > 0) driver_->CopyToDevice(copy.device, copy.host, copy.size, stream_);
  }
  Finish();
}

void Staging::Abandon() noexcept {
  if (copying_) driver_->Drain(stream_);
  copying_ = false;
}

std::vector<Staging::Copy> Staging::Stage(Buffers& buffers, size_t first) {
  std::vector<Copy> copies;
  size_t shared = 0;
  for (size_t i = first; i < buffers.size(); ++i) {
    const auto size = static_cast<size_t>(SizeInBytes(buffers[i]));
    copies.push_back({std::exchange(buffers[i].data, nullptr), nullptr, size});
    if (size < kWorthOwnMemory) shared += Aligned(size);
  }
  auto* next = static_cast<char*>(shared == 0 ? nullptr : Take(shared));
  for (size_t i = 0; i < copies.size(); ++i) {
    Copy& copy = copies[i];
    if (copy.size == 0) continue;
    copy.host = copy.size < kWorthOwnMemory ? std::exchange(next, next + Aligned(copy.size))
                                            : Take(copy.size);
    buffers[first + i].data = copy.host;
  }
  return copies;
}

void* Staging::Take(size_t size) {
  if (PinnedPool::Block block = pool_->Take(size); block != nullptr) {
    return pinned_.emplace_back(std::move(block)).get();
  }
  ordinary_.emplace_back(std::malloc(size));
  void* memory = ordinary_.back().get();
  if (memory == nullptr) {
    throw Failure(ffi::ErrorCode::kResourceExhausted,
                  "hostcall: the host has no memory for an operand or a result of " +
                      std::to_string(size) +
                      " bytes, which is copied there from the device for a host callback. Pass "
                      "less of it.");
  }
  ExpectToFill(memory, size);
  return memory;
}

void Staging::Finish() {
  driver_->Wait(stream_);
  copying_ = false;
}

}  // namespace hostcall
