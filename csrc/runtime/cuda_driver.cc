#include "cuda_driver.h"

#include <dlfcn.h>

#include <mutex>

#include "failure.h"
#include "fork.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// The driver that is in use.
class Chosen : public HeldAcrossFork<Chosen> {
 public:
  std::shared_ptr<const CudaDriver> Get() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (driver_ == nullptr) driver_ = std::make_shared<const CudaDriver>(path_);
    return driver_;
  }

  void Set(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    path_ = path;
    driver_ = nullptr;
  }

 private:
  // XLA loads this file, and has made it ready for use (cuInit) before it calls any handler.
  std::string path_ = "libcuda.so.1";
  std::shared_ptr<const CudaDriver> driver_;  // null until it is loaded
};

Failure Unusable(const std::string& path, const std::string& why) {
  return Failure(ffi::ErrorCode::kFailedPrecondition,
                 "hostcall: a program on a GPU calls Python, and its arrays are copied by NVIDIA's "
                 "driver, but " +
                     path + " " + why +
                     " Install the driver of the GPU, or run the program on the CPU.");
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Converts XLA's pointer, which must not be dereferenced, to the number that drivers take.
auto ToAddress(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

std::shared_ptr<const CudaDriver> CudaDriver::Get() { return Chosen::Global().Get(); }

void CudaDriver::Load(const std::string& path) {
  Chosen::Global().Set(path);
  Get();
}

CudaDriver::CudaDriver(const std::string& path)
    : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) {
    const char* error = dlerror();
    throw Unusable(path, "cannot be loaded: " + std::string(error ? error : "unknown error") + ".");
  }
  std::vector<std::string> missing;
  Find(copy_to_host_, "cuMemcpyDtoHAsync_v2", missing);
  Find(copy_to_device_, "cuMemcpyHtoDAsync_v2", missing);
  Find(copy_within_, "cuMemcpyDtoDAsync_v2", missing);
  Find(synchronize_, "cuStreamSynchronize", missing);
  Find(pin_, "cuMemHostAlloc", missing);
  Find(unpin_, "cuMemFreeHost", missing);
  Find(get_attribute_, "cuPointerGetAttribute", missing);
  Find(get_device_, "cuCtxGetDevice", missing);
  Find(get_context_, "cuCtxGetCurrent", missing);
  Find(set_context_, "cuCtxSetCurrent", missing);
  Find(error_name_, "cuGetErrorName", missing);
  Find(error_text_, "cuGetErrorString", missing);
  if (!missing.empty())
    throw Unusable(path, "is not such a driver: it lacks " + Listed(missing) + ".");
}

void CudaDriver::CopyToHost(void* to, const void* from, size_t size, CudaStream stream) const {
  Check(copy_to_host_(to, ToAddress(from), size, stream), "copying operands to the host");
}

void CudaDriver::CopyToDevice(void* to, const void* from, size_t size, CudaStream stream) const {
  Check(copy_to_device_(ToAddress(to), from, size, stream), "copying results to the device");
}

void CudaDriver::CopyWithin(void* to, const void* from, size_t size, CudaStream stream) const {
  Check(copy_within_(ToAddress(to), ToAddress(from), size, stream),
        "copying results on the device");
}

void CudaDriver::Wait(CudaStream stream) const {
  Check(synchronize_(stream), "waiting for the device");
}

void* CudaDriver::Pin(size_t size) const noexcept {
  void* pinned = nullptr;
  return pin_(&pinned, size, /*flags=*/0) == 0 ? pinned : nullptr;
}

int CudaDriver::DeviceOf(const void* memory) const noexcept {
  constexpr int kMemoryType = 2, kOrdinal = 9;  // CU_POINTER_ATTRIBUTE_...
  constexpr unsigned kOnDevice = 2;             // CU_MEMORYTYPE_DEVICE
  unsigned type = 0;
  int ordinal = -1;
  if (get_attribute_(&type, kMemoryType, ToAddress(memory)) != 0 || type != kOnDevice) return -1;
  return get_attribute_(&ordinal, kOrdinal, ToAddress(memory)) == 0 ? ordinal : -1;
}

int CudaDriver::CurrentDevice() const {
  int device = 0;
  Check(get_device_(&device), "asking for the device of the program");
  return device;
}

CudaContext CudaDriver::CurrentContext() const {
  CudaContext context = nullptr;
  Check(get_context_(&context), "asking for the context of the thread");
  return context;
}

void CudaDriver::SetCurrentContext(CudaContext context) const {
  Check(set_context_(context), "giving the thread its context back");
}

void CudaDriver::Close::operator()(void* library) const { dlclose(library); }

template <typename Function>
void CudaDriver::Find(Function*& function, const char* name,
                      std::vector<std::string>& missing) const {
  function = reinterpret_cast<Function*>(dlsym(library_.get(), name));
  if (function == nullptr) missing.push_back(name);
}

void CudaDriver::Check(Result result, const char* doing) const {
  if (result == 0) return;
  const char* name = nullptr;
  const char* text = nullptr;
  // The driver says nothing of codes that it does not know.
  if (error_name_(result, &name) != 0 || name == nullptr) name = "an error without a name";
  if (error_text_(result, &text) != 0 || text == nullptr) text = "no description";
  throw Failure(ffi::ErrorCode::kInternal,
                "hostcall: " + std::string(doing) + " for a host callback failed with " + name +
                    " (" + std::to_string(result) + "): " + text +
                    ". CUDA reports what goes wrong on a device late: what the program has run "
                    "there before the callback may be the cause.");
}

}  // namespace hostcall
