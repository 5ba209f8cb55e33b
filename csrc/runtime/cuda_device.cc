#include "cuda_device.h"

#include <string>
#include <utility>

#include "array_memory.h"
#include "failure.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Smaller buffers share memory.
constexpr size_t kWorthOwnMemory = size_t{1} << 16;
// No dtype needs more, and no two buffers share a cache line.
constexpr size_t kAlignment = 64;

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// CUDA's number for the default stream, whose handle is null.
constexpr uintptr_t kDefaultStream = 1;

// Numbers the default stream, too: DLPack and __cuda_array_interface__ forbid 0 for it.
uintptr_t Numbered(CudaStream stream) {
  return stream == nullptr ? kDefaultStream : reinterpret_cast<uintptr_t>(stream);
}

}  // namespace

CudaDevice::CudaDevice(CudaStream stream)
    : driver_(CudaDriver::Get()),
      context_(driver_->CurrentContext()),
      stream_(stream),
      place_{Place::kCuda, driver_->CurrentDevice(), Numbered(stream)},
      pool_(PinnedPool::Of(driver_, context_)) {}

// Waits: after a failure, copies may still be under way into memory that others get now.
CudaDevice::~CudaDevice() { Abandon(); }

void CudaDevice::Fetch(Buffers& operands, size_t first) {
  copying_ = true;
  for (const Staged& staged : Stage(operands, first)) {
    if (staged.size > 0) driver_->CopyToHost(staged.host, staged.device, staged.size, stream_);
  }
  Finish();
}

void CudaDevice::Reserve(Buffers& results, size_t first) {
  for (const Staged& staged : Stage(results, first)) results_.push_back(staged);
}

void CudaDevice::Return() {
  copying_ = true;
  for (const Staged& staged : results_) {
    if (staged.size > 0) driver_->CopyToDevice(staged.device, staged.host, staged.size, stream_);
  }
  Finish();
}

void CudaDevice::Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams) {
  // The function may have left the thread with another context.
  Activate();
  // CuPy, Numba and Torch run kernels there, unless the user has chosen another stream.
  driver_->Wait(reinterpret_cast<CudaStream>(kDefaultStream));
  for (const uintptr_t stream : streams) driver_->Wait(reinterpret_cast<CudaStream>(stream));
  try {
    copying_ = true;
    for (const auto& [to, from, size] : copies) driver_->CopyWithin(to, from, size, stream_);
    Return();
  } catch (const Failure&) {
    Abandon();  // before what is copied from is the function's to free
    throw;
  }
}

std::vector<CudaDevice::Staged> CudaDevice::Stage(Buffers& buffers, size_t first) {
  std::vector<Staged> all;
  size_t shared = 0;
  for (size_t i = first; i < buffers.size(); ++i) {
    const auto size = static_cast<size_t>(SizeInBytes(buffers[i]));
    all.push_back({std::exchange(buffers[i].data, nullptr), nullptr, size});
    if (size < kWorthOwnMemory) shared += Aligned(size);
  }
  auto* next = static_cast<char*>(shared == 0 ? nullptr : Take(shared));
  for (size_t i = 0; i < all.size(); ++i) {
    Staged& staged = all[i];
    if (staged.size == 0) continue;
    staged.host = staged.size < kWorthOwnMemory ? std::exchange(next, next + Aligned(staged.size))
                                                : Take(staged.size);
    buffers[first + i].data = staged.host;
  }
  return all;
}

void* CudaDevice::Take(size_t size) {
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

void CudaDevice::Finish() {
  driver_->Wait(stream_);
  copying_ = false;
}

// Waits for copies under way, after a failure.
void CudaDevice::Abandon() noexcept {
  if (copying_) driver_->Drain(stream_);
  copying_ = false;
}

}  // namespace hostcall
