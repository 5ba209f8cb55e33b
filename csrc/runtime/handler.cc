#include "handler.h"

#include <Python.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

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

Result Handle(ffi::RemainingArgs args, ffi::RemainingRets rets, const Attributes& attributes) {
  return Answered([&]() -> Result {
    HostCall call = ReadFrame(args, rets, attributes.callback);
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

}  // namespace
}  // namespace hostcall

HOSTCALL_DEFINE_HANDLER(HostcallHandler, hostcall::Handle, hostcall::BindFrame(ffi::Ffi::Bind()));
