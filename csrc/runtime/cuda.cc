// The handler for programs on NVIDIA GPUs: copies the operands to the host, makes the call there,
// and copies the results back.
#include <Python.h>

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "call.h"
#include "call_frame.h"
#include "cuda_driver.h"
#include "cuda_staging.h"
#include "failure.h"
#include "gil.h"
#include "handler.h"
#include "pool.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

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
  // The callback may turn to another device, and XLA goes on launching on this thread.
  const CudaContext context = driver->CurrentContext();
  Staging staging(driver, context, stream);
  staging.Fetch(call.operands);
  staging.Reserve(call.results);
  ReadAttributes(call, attributes);
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
