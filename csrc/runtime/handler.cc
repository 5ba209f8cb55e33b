#include "handler.h"

#include <Python.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "call.h"
#include "call_frame.h"
#include "compat/ffi.h"
#include "gil.h"
#include "handler_result.h"
#include "pool.h"
#include "registry.h"

namespace ffi = xla::ffi;

namespace hostcall {

namespace {

// A thread that Python knows came in from Python and has nothing else to do. Any other is one of
// XLA's few: if callbacks held them all, a callback that itself runs a program would wait for ever.
bool RunsHere(const HostCall& call) {
  return PyGILState_GetThisThreadState() != nullptr &&
         (call.ordered || call.callback == nullptr || !call.callback->WasLong());
}

void Complete(ffi::Promise& promise, const HostCall& call) {
  if (auto error = RunHostCall(call); error.has_value()) {
    promise.SetError(*std::move(error));
  } else {
    promise.SetAvailable();
  }
}

template <typename Args, typename Rets>
Result Handle(const Args& args, const Rets& rets, const Attributes& attributes) {
  return Answered([&]() -> Result {
    HostCall call = ReadFrame(RawBuffers(args), RawBuffers(rets), attributes.callback);
    ReadAttributes(call, attributes);
    // Without an interpreter the call ends with an error, and no thread can be made ready for it.
    if (RunsHere(call) || !PythonIsRunning()) return {std::nullopt, RunHostCall(call)};
    ffi::Promise promise;
    ffi::Future future(promise);
    const auto kept = std::make_shared<const OwningCall>(std::move(call));
    RunOnPool([promise, kept]() mutable { Complete(promise, kept->call()); });
    return {std::move(future), std::nullopt};
  });
}

HOSTCALL_DEFINE_HANDLER(HandleCallBound, (Handle<ffi::RemainingArgs, ffi::RemainingRets>),
                        BindFrame(ffi::Ffi::Bind()));

// Returns false where the frame asks for something else than a call, or is malformed.
bool ReadDirectly(const XLA_FFI_CallFrame& frame, Attributes& attributes) {
  if (frame.extension_start != nullptr || frame.stage != XLA_FFI_ExecutionStage_EXECUTE) {
    return false;
  }
  AttributeReader reader(frame.attrs);
  Read(reader, attributes);
  return reader.Ended();
}

XLA_FFI_Error* HandleDirectly(XLA_FFI_CallFrame& frame, const Attributes& attributes) {
  using Encoding = ffi::ResultEncoding<ffi::ExecutionStage::kExecute, Result>;
  const auto answer =
      Encoding::Encode(frame.api, frame.ctx, Handle(frame.args, frame.rets, attributes));
  if (const auto* error = std::get_if<XLA_FFI_Error*>(&answer)) return *error;
  frame.future = std::get<XLA_FFI_Future*>(answer);
  return nullptr;
}

}  // namespace
}  // namespace hostcall

// The FFI's binding costs a call more than a small function takes. It answers what else XLA asks.
extern "C" XLA_FFI_Error* HostcallHandler(XLA_FFI_CallFrame* frame) {
  hostcall::Attributes attributes;
  return hostcall::ReadDirectly(*frame, attributes) ? hostcall::HandleDirectly(*frame, attributes)
                                                    : hostcall::HandleCallBound(frame);
}
