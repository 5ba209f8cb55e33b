// The handler for programs on NVIDIA GPUs: copies the operands to the host, makes the call there,
// and copies the results back.
#include <Python.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "call.h"
#include "cuda_device.h"
#include "failure.h"
#include "frame.h"
#include "gil.h"
#include "handler.h"
#include "pool.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Runs a call on a thread that Python knows: this one, or one of the pool. On any other thread,
// each call would lose the state that libraries keep for a Python thread. XLA waits for the end,
// and launches nothing meanwhile, even if the handler returns a future. (A host function of the
// stream would leave XLA free, but must not call CUDA, as callbacks may.)
template <typename Run>
std::optional<ffi::Error> RunAnywhere(HostCall& call, Run run) {
  if (PyGILState_GetThisThreadState() != nullptr || !PythonIsRunning()) return run();
  call.RunElsewhere();
  const auto promise = std::make_shared<std::promise<std::optional<ffi::Error>>>();
  auto outcome = promise->get_future();
  RunOnPool([promise, &run] { promise->set_value(run()); });
  return outcome.get();
}

// Returns the index of the first true size; these come last.
size_t FirstSize(const Buffers& buffers, Pairs dynamic) {
  return buffers.size() - std::min(buffers.size(), dynamic.size() / 2);
}

// Makes a call, after everything that the program did before, with copies of the buffers. Where the
// function takes them on the device, true sizes alone are copied. The results are in place when the
// call has ended.
std::optional<ffi::Error> Run(HostCall& call, const Attributes& attributes, CudaStream stream) {
  CudaDevice device(stream);
  const bool on_device = call.convention().on_device;
  if (on_device) call.device = &device;
  device.Fetch(call.operands,
               on_device ? FirstSize(call.operands, attributes.dynamic_operands) : 0);
  device.Reserve(call.results, on_device ? FirstSize(call.results, attributes.dynamic_results) : 0);
  call.ReadSizes(attributes);
  std::optional<ffi::Error> error = RunAnywhere(call, [&]() -> std::optional<ffi::Error> {
    try {
      if (on_device) device.Activate();
    } catch (const Failure& failure) {
      return ToError(failure, call);
    }
    return RunHostCall(call);
  });
  // The callback may have turned to another device, and XLA goes on launching here.
  device.Activate();
  if (!error.has_value() && !on_device) device.Return();
  return error;
}

CudaStream StreamOf(const XLA_FFI_CallFrame& frame) {
  using Decoding = ffi::CtxDecoding<ffi::PlatformStream<CudaStream>>;
  ffi::DiagnosticEngine diagnostic;
  const auto stream = Decoding::Decode(frame.api, frame.ctx, diagnostic);
  if (!stream.has_value()) throw Failure::InvalidArgument(diagnostic.Result());
  return *stream;
}

Result HandleOnStream(const XLA_FFI_CallFrame& frame) {
  const Attributes attributes(frame.attrs);
  const CudaStream stream = StreamOf(frame);
  HostCall call(frame, attributes);
  call.in_program_memory = false;
  try {
    return {std::nullopt, Run(call, attributes, stream)};
  } catch (const Failure& failure) {
    return {std::nullopt, ToError(failure, call)};
  }
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallCudaHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::HandleOnStream);
}
