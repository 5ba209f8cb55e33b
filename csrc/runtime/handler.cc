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
#include "turns.h"

namespace ffi = xla::ffi;

namespace hostcall {

namespace {

// A thread that Python knows came in from Python and has nothing else to do. Any other is one of
// XLA's few: if callbacks held them all, a callback that itself runs a program would wait for ever.
bool MayRunHere() { return PyGILState_GetThisThreadState() != nullptr; }

bool IsConcurrent(const HostCall& call) {
  return !call.ordered && call.callback != nullptr && call.callback->convention().concurrent;
}

void Complete(ffi::Promise& promise, std::optional<ffi::Error> error) {
  if (error.has_value()) {
    promise.SetError(*std::move(error));
  } else {
    promise.SetAvailable();
  }
}

// Runs the call on the pool, once `start` has given it a thread.
template <typename Start>
Result RunLater(HostCall call, Start start) {
  ffi::Promise promise;
  ffi::Future future(promise);
  start(std::make_shared<const OwningCall>(std::move(call)), promise);
  return {std::move(future), std::nullopt};
}

using Kept = std::shared_ptr<const OwningCall>;

Result RunBesideOthers(HostCall call) {
  if (MayRunHere() && !call.callback->WasLong()) return {std::nullopt, RunHostCall(call)};
  return RunLater(std::move(call), [](Kept kept, ffi::Promise promise) {
    RunOnPool([kept, promise]() mutable { Complete(promise, RunHostCall(kept->call())); });
  });
}

Result RunInTurn(HostCall call, int64_t run) {
  if (MayRunHere() && turns::TryBegin(run)) {
    std::optional<ffi::Error> error = RunHostCall(call);
    turns::End(run);
    return {std::nullopt, std::move(error)};
  }
  return RunLater(std::move(call), [run](Kept kept, ffi::Promise promise) {
    turns::RunInTurn(run, [run, kept, promise]() mutable {
      std::optional<ffi::Error> error = RunHostCall(kept->call());
      turns::End(run);  // first: XLA may go on here, for long
      Complete(promise, std::move(error));
    });
  });
}

template <typename Args, typename Rets>
Result Handle(int64_t run, const Args& args, const Rets& rets, const Attributes& attributes) {
  return Answered([&]() -> Result {
    HostCall call = ReadFrame(RawBuffers(args), RawBuffers(rets), attributes.callback);
    ReadAttributes(call, attributes);
    // Without an interpreter the call ends with an error, and no thread can be made ready for it.
    if (!PythonIsRunning()) return {std::nullopt, RunHostCall(call)};
    return IsConcurrent(call) ? RunBesideOthers(std::move(call)) : RunInTurn(std::move(call), run);
  });
}

// What the FFI's binding is for: the execution itself comes to `HandleDirectly`.
Result HandleBound(ffi::RemainingArgs args, ffi::RemainingRets rets, const Attributes& attributes) {
  return Handle(turns::kUnknown, args, rets, attributes);
}

HOSTCALL_DEFINE_HANDLER(HandleCallBound, HandleBound, BindFrame(ffi::Ffi::Bind()));

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
  const auto answer = Encoding::Encode(
      frame.api, frame.ctx,
      Handle(turns::RunOf(frame.api, frame.ctx), frame.args, frame.rets, attributes));
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
