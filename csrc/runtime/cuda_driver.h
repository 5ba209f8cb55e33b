// NVIDIA's driver. hostcall is built without CUDA, and loads the driver at the first call of a
// program on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The driver's types, as in its binary interface.
struct CUstream_st;
struct CUctx_st;

namespace hostcall {

using CudaStream = CUstream_st*;
using CudaContext = CUctx_st*;

// The driver's functions that the runtime uses. They need the context of the stream to be current,
// as it is on the thread on which XLA calls handlers, and throw Failure.
class CudaDriver {
 public:
  // Returns the driver of the path given last, at first the system's.
  static std::shared_ptr<const CudaDriver> Get();

  // Makes later calls use another driver. If it cannot be loaded, this fails, and so do they.
  static void Load(const std::string& path);

  explicit CudaDriver(const std::string& path);

  // Copy asynchronously. Call `Wait` after them: the host's memory is read or written until then.
  void CopyToHost(void* to, const void* from, size_t size, CudaStream stream) const;
  void CopyToDevice(void* to, const void* from, size_t size, CudaStream stream) const;

  void CopyWithin(void* to, const void* from, size_t size, CudaStream stream) const;

  // Waits until all work of the stream is done. Call it without the GIL: it may take long.
  void Wait(CudaStream stream) const;

  // Does the same where no failure can be reported.
  void Drain(CudaStream stream) const noexcept { (void)synchronize_(stream); }

  // Allocates pinned host memory, which copies use directly; null on failure. Unpin frees it.
  void* Pin(size_t size) const noexcept;
  void Unpin(void* pinned) const noexcept { (void)unpin_(pinned); }

  // Return the number of the device that owns the memory, -1 if none does, and that of the device
  // of the current context.
  int DeviceOf(const void* memory) const noexcept;
  int CurrentDevice() const;

  // Returns the context that is current on this thread.
  CudaContext CurrentContext() const;
  void SetCurrentContext(CudaContext context) const;

 private:
  using Result = int;
  using Address = unsigned long long;
  struct Close {
    void operator()(void* library) const;
  };

  template <typename Function>
  void Find(Function*& function, const char* name, std::vector<std::string>& missing) const;
  void Check(Result result, const char* doing) const;

  std::unique_ptr<void, Close> library_;
  Result (*copy_to_host_)(void*, Address, size_t, CudaStream);
  Result (*copy_to_device_)(Address, const void*, size_t, CudaStream);
  Result (*copy_within_)(Address, Address, size_t, CudaStream);
  Result (*synchronize_)(CudaStream);
  Result (*pin_)(void**, size_t, unsigned);
  Result (*unpin_)(void*);
  Result (*get_attribute_)(void*, int, Address);
  Result (*get_device_)(int*);
  Result (*get_context_)(CudaContext*);
  Result (*set_context_)(CudaContext);
  Result (*error_name_)(Result, const char**);
  Result (*error_text_)(Result, const char**);
};

}  // namespace hostcall
