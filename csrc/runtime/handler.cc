#include "handler.h"

#include <Python.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "call.h"
#include "frame.h"
#include "gil.h"
#include "interrupts.h"
#include "pool.h"
#include "turns.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Returns whether this thread may run a call. One that Python knows came from Python and has
// nothing else to do. Any other is one of XLA's few: if callbacks held all, a callback that runs a
// program would wait for ever. If XLA goes on here since a call has ended, only calls known to be
// short run at once: Ctrl-C could not end them, and others may wait for this thread.
bool MayRunHere(const HostCall& call) {
  if (PyGILState_GetThisThreadState() == nullptr) return false;
  return !XlaGoesOnHere() || call.callback == nullptr || call.callback->WasShort();
}

// Returns an error if a thread of the pool cannot run the call, which then ends at once: without an
// interpreter none can be made ready.
std::optional<ffi::Error> EndedWithPython(const HostCall& call) {
  return PythonIsRunning() ? std::nullopt : RunHostCall(call);
}

// A call that the program waits for by a future.
class LaterCall : public std::enable_shared_from_this<LaterCall> {
 public:
  explicit LaterCall(HostCall&& call) : call_(std::move(call)) { call_.OutliveFrame(); }

  // Returns the future. The call can be given up now, unless the function has the program's memory.
  ffi::Future Begin() {
    if (!call_.lends()) {
      call_.abandonment = &abandonment_;
      waiting_.emplace(call_, [kept = weak_from_this()](const ffi::Error& error) {
        if (const auto call = kept.lock()) call->GiveUp(error);
      });
    }
    return ffi::Future(promise_);
  }

  std::optional<ffi::Error> Run() const { return RunHostCall(call_); }

  // Ends the call with the result of `Run`.
  void End(std::optional<ffi::Error> error) {
    {
      std::lock_guard<std::mutex> lock(abandonment_.mutex);
      if (abandonment_.is_abandoned) return;
      has_ended_ = true;
    }
    Complete(promise_, std::move(error));
  }

 private:
  void GiveUp(const ffi::Error& error) {
    {
      std::lock_guard<std::mutex> lock(abandonment_.mutex);
      if (has_ended_) return;
      abandonment_.is_abandoned = true;
    }
    Complete(promise_, error);
  }

  ffi::Promise promise_;
  Abandonment abandonment_;
  bool has_ended_ = false;
  HostCall call_;
  std::optional<interrupts::Waiting> waiting_;
};

// Takes the call by reference, as RunInTurn does: to move it costs more than some functions take.
Result RunBesideOthers(HostCall& call) {
  const bool is_worth_a_thread =
      !call.ordered && call.callback != nullptr && call.callback->WasLong();
  if (MayRunHere(call) && !is_worth_a_thread) return {std::nullopt, RunHostCall(call)};
  if (auto error = EndedWithPython(call)) return {std::nullopt, std::move(error)};
  const auto later = std::make_shared<LaterCall>(std::move(call));
  ffi::Future future = later->Begin();
  RunOnPool([later] { later->End(later->Run()); });
  return {std::move(future), std::nullopt};
}

Result RunInTurn(HostCall& call) {
  const int64_t run = call.run.number;
  if (MayRunHere(call) && turns::TryBegin(run)) {
    std::optional<ffi::Error> error = RunHostCall(call);
    turns::End(run);
    return {std::nullopt, std::move(error)};
  }
  if (auto error = EndedWithPython(call)) return {std::nullopt, std::move(error)};
  const auto later = std::make_shared<LaterCall>(std::move(call));
  ffi::Future future = later->Begin();
  turns::RunInTurn(run, [run, later] {
    std::optional<ffi::Error> error = later->Run();
    turns::End(run);  // first: XLA may go on here, for long
    later->End(std::move(error));
  });
  return {std::move(future), std::nullopt};
}

Result Handle(const XLA_FFI_CallFrame& frame) {
  const Attributes attributes(frame.attrs);
  HostCall call(frame, attributes);
  call.ReadSizes(attributes);
  if (call.is_concurrent()) call.is_timed = true;
  return call.is_concurrent() || !call.run.takes_turns ? RunBesideOthers(call) : RunInTurn(call);
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Handle);
}
