// The handler for programs on NVIDIA GPUs: copies the operands to the host, makes the call there,
// and copies the results back.
#include <Python.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "call_frame.h"
#include "cuda_driver.h"
#include "failure.h"
#include "gil.h"
#include "handler.h"
#include "pages.h"
#include "pool.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Memory of the host's in the place of a device's buffers.
//
// It is ordinary memory. A device copies faster from and to pinned memory, but pinning takes long
// itself: it would pay only where memory is kept from call to call.
class Staging {
 public:
  Staging(const CudaDriver& driver, CudaStream stream) : driver_(driver), stream_(stream) {}

  ~Staging() {
    // Where something has failed, copies may be under way still, into memory that is freed now.
    if (copying_) driver_.Drain(stream_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Has each buffer lie in the host's memory, with its values. Waits for all that the program has
  // done so far, even where there are no operands: a callback comes after what stands before it.
  void Fetch(std::vector<Buffer>& operands) {
    copying_ = true;
    for (Buffer& operand : operands) {
      const Copy copy = Stage(operand);
      if (copy.size > 0) driver_.CopyToHost(copy.host, copy.device, copy.size, stream_);
    }
    Finish();
  }

  // Has each buffer lie in the host's memory, for values to be written.
  void Reserve(std::vector<Buffer>& results) {
    for (Buffer& result : results) results_.push_back(Stage(result));
  }

  // Copies to the device what has been written.
  void Return() {
    copying_ = true;
    for (const Copy& copy : results_) {
      if (copy.size > 0) driver_.CopyToDevice(copy.device, copy.host, copy.size, stream_);
    }
    Finish();
  }

 private:
  struct Copy {
    void* device;
    void* host;
    size_t size;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  Copy Stage(Buffer& buffer) {
    const auto size = static_cast<size_t>(SizeInBytes(buffer));
    Copy copy{std::exchange(buffer.data, nullptr), nullptr, size};
    if (copy.size == 0) return copy;
    memory_.emplace_back(std::malloc(copy.size));
    if (memory_.back() == nullptr) {
      throw Failure(ffi::ErrorCode::kResourceExhausted,
                    "hostcall: the host has no memory for an operand or a result of " +
                        std::to_string(copy.size) +
                        " bytes, which is copied there from the device for a host callback. Pass "
                        "less of it.");
    }
    ExpectToFill(memory_.back().get(), copy.size);
    copy.host = buffer.data = memory_.back().get();
    return copy;
  }

  void Finish() {
    driver_.Wait(stream_);
    copying_ = false;
  }

  const CudaDriver& driver_;
  const CudaStream stream_;
  std::vector<std::unique_ptr<void, Free>> memory_;
  std::vector<Copy> results_;
  bool copying_ = false;
};

// XLA waits for the end, and launches nothing meanwhile, whether this returns a future or not. (A
// host function of the stream would leave it free, but must not call CUDA, as callbacks may.) So a
// thread that Python knows makes the call. Any other would lose with each call what libraries keep
// for a thread of Python's, and leaves it to the pool.
std::optional<ffi::Error> RunAndWait(const HostCall& call) {
  if (PyGILState_GetThisThreadState() != nullptr || !PythonIsRunning()) return RunHostCall(call);
  const auto promise = std::make_shared<std::promise<std::optional<ffi::Error>>>();
  auto outcome = promise->get_future();
  RunOnPool([promise, &call] { promise->set_value(RunHostCall(call)); });
  return outcome.get();
}

std::optional<ffi::Error> RunOnCopies(HostCall& call, const Attributes& attributes,
                                      CudaStream stream) {
  const std::shared_ptr<const CudaDriver> driver = CudaDriver::Get();
  Staging staging(*driver, stream);
  staging.Fetch(call.operands);
  staging.Reserve(call.results);
  ReadAttributes(call, attributes);
  // The callback may turn to another device, and XLA goes on launching on this thread.
  const CudaContext context = driver->CurrentContext();
  std::optional<ffi::Error> error = RunAndWait(call);
  driver->SetCurrentContext(context);
  if (!error.has_value()) staging.Return();
  return error;
}

ffi::Error Handle(CudaStream stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                  int64_t callback, Pairs dynamic_operands, Pairs dynamic_results,
                  Pairs sub_byte_operands, Pairs sub_byte_results) {
  HostCall call;
  try {
    call = ReadFrame(args, rets, callback);
    call.in_program_memory = false;
    const Attributes attributes{dynamic_operands, dynamic_results, sub_byte_operands,
                                sub_byte_results};
    return RunOnCopies(call, attributes, stream).value_or(ffi::Error::Success());
  } catch (const Failure& failure) {
    return ToError(failure, call);
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
}

}  // namespace
}  // namespace hostcall

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    HostcallCudaHandler, hostcall::Handle,
    hostcall::BindFrame(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<hostcall::CudaStream>>()));
