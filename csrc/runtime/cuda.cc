// The handler for programs on NVIDIA GPUs: copies the operands to the host, makes the call there,
// and copies the results back.
#include <Python.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "call.h"
#include "call_frame.h"
#include "cuda_device.h"
#include "cuda_driver.h"
#include "cuda_staging.h"
#include "failure.h"
#include "frame.h"
#include "gil.h"
#include "handler.h"
#include "pool.h"
#include "turns.h"

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
  call.RunsElsewhere();
  const auto promise = std::make_shared<std::promise<std::optional<ffi::Error>>>();
  auto outcome = promise->get_future();
  RunOnPool([promise, &run] { promise->set_value(run()); });
  return outcome.get();
}

// A program on a GPU.
struct Program {
  std::shared_ptr<const CudaDriver> driver;
  CudaContext context;
  CudaStream stream;
};

// Restores the context: the callback may turn to another device, and XLA goes on launching here.
template <typename Run>
std::optional<ffi::Error> RunAndWait(HostCall& call, const Program& program, Run run) {
  std::optional<ffi::Error> error = RunAnywhere(call, std::move(run));
  program.driver->SetCurrentContext(program.context);
  return error;
}

std::optional<ffi::Error> RunOnCopies(HostCall& call, const Attributes& attributes,
                                      const Program& program) {
  Staging staging(program.driver, program.context, program.stream);
  staging.Fetch(call.operands);
  staging.Reserve(call.results);
  ReadAttributes(call, attributes);
  std::optional<ffi::Error> error =
      RunAndWait(call, program, [&call] { return RunHostCall(call); });
  if (!error.has_value()) staging.Return();
  return error;
}

// Returns the index of the first true size; these come last.
size_t FirstSize(const Buffers& buffers, Pairs dynamic) {
  return buffers.size() - std::min(buffers.size(), dynamic.size() / 2);
}

// Makes a call with arrays on the device, after everything that the program did before. The results
// are in place when the call has ended.
std::optional<ffi::Error> RunOnDevice(HostCall& call, const Attributes& attributes,
                                      const Program& program) {
  Staging staging(program.driver, program.context, program.stream);
  CudaDevice device(program.driver, program.context, program.stream, staging);
  staging.Fetch(call.operands, FirstSize(call.operands, attributes.dynamic_operands));
  staging.Reserve(call.results, FirstSize(call.results, attributes.dynamic_results));
  ReadAttributes(call, attributes);
  call.device = &device;
  return RunAndWait(call, program, [&]() -> std::optional<ffi::Error> {
    try {
      device.Activate();
    } catch (const Failure& failure) {
      return ToError(failure, call);
    }
    return RunHostCall(call);
  });
}

std::optional<ffi::Error> Run(HostCall& call, const Attributes& attributes, CudaStream stream) {
  const std::shared_ptr<const CudaDriver> driver = CudaDriver::Get();
  const Program program{driver, driver->CurrentContext(), stream};
  const bool on_device = call.callback != nullptr && call.callback->convention().on_device;
  return on_device ? RunOnDevice(call, attributes, program)
                   : RunOnCopies(call, attributes, program);
}

CudaStream StreamOf(const XLA_FFI_CallFrame& frame) {
  using Decoding = ffi::CtxDecoding<ffi::PlatformStream<CudaStream>>;
  ffi::DiagnosticEngine diagnostic;
  const auto stream = Decoding::Decode(frame.api, frame.ctx, diagnostic);
  if (!stream.has_value()) throw Failure::InvalidArgument(diagnostic.Result());
  return *stream;
}

Result Handle(const XLA_FFI_CallFrame& frame) {
  const Attributes attributes(frame.attrs);
  const CudaStream stream = StreamOf(frame);
  HostCall call = ReadFrame(frame, attributes.callback);
  call.run = turns::RunOf(frame.api, frame.ctx).number;
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
  return hostcall::Answer(frame, hostcall::Handle);
}
