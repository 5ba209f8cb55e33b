#include "cuda_device.h"

#include <utility>

#include "failure.h"

namespace hostcall {
namespace {

// CUDA's number for the default stream, whose handle is null.
constexpr uintptr_t kDefaultStream = 1;

// Numbers the default stream, too: DLPack and __cuda_array_interface__ forbid 0 for it.
uintptr_t Numbered(CudaStream stream) {
  return stream == nullptr ? kDefaultStream : reinterpret_cast<uintptr_t>(stream);
}

}  // namespace

CudaDevice::CudaDevice(std::shared_ptr<const CudaDriver> driver, CudaContext context,
                       CudaStream stream, Staging& staging)
    : driver_(std::move(driver)),
      context_(context),
      staging_(staging),
      place_{Place::kCuda, driver_->CurrentDevice(), Numbered(stream)} {}

void CudaDevice::Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams) {
  // The function may have left the thread with another context.
  Activate();
  // CuPy, Numba and Torch run kernels there, unless the user has chosen another stream.
  driver_->Wait(reinterpret_cast<CudaStream>(kDefaultStream));
  for (const uintptr_t stream : streams) driver_->Wait(reinterpret_cast<CudaStream>(stream));
  try {
    for (const auto& [to, from, size] : copies) staging_.CopyWithin(to, from, size);
    staging_.Return();
  } catch (const Failure&) {
    staging_.Abandon();  // before what is copied from is the function's to free
    throw;
  }
}

}  // namespace hostcall
