// NVIDIA's driver. hostcall is built without CUDA, and loads it when a program on a GPU first
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The types of the driver, as its binary interface has them.
struct CUstream_st;
struct CUctx_st;

namespace hostcall {

using CudaStream = CUstream_st*;
using CudaContext = CUctx_st*;

// The functions that are used of it. All of them want the context of the stream to be current, as
// it is on the thread that XLA calls handlers on, and throw Failure.
class CudaDriver {
 public:
  // The driver of the path given last, at first that of the system.
  static std::shared_ptr<const CudaDriver> Get();

  // Has calls that come after this use another one. Where it cannot be loaded, they fail, too.
  static void Load(const std::string& path);

  explicit CudaDriver(const std::string& path);

  // To be waited for: the host's memory is read or written until then.
  void CopyToHost(void* to, const void* from, size_t size, CudaStream stream) const;
  void CopyToDevice(void* to, const void* from, size_t size, CudaStream stream) const;

  void CopyWithin(void* to, const void* from, size_t size, CudaStream stream) const;

  // Waits until all that the stream was given is done. Not with the GIL: it may take long.
  void Wait(CudaStream stream) const;

  // The same where nobody can be told of failures.
  void Drain(CudaStream stream) const noexcept { (void)synchronize_(stream); }

  // Memory of the host's that copies need not go round, to be given back; null where there is none.
  void* Pin(size_t size) const noexcept;
  void Unpin(void* pinned) const noexcept { (void)unpin_(pinned); }

  // The number of the device whose memory it is, or of the one of the current context; -1 where it
  // is none's.
  int DeviceOf(const void* memory) const noexcept;
  int CurrentDevice() const;

  // The context that is current on this thread.
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
