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

// Returns whether a call is better made beside others, as the last one of its callback took long.
bool IsWorthAThread(const HostCall& call) {
  return !call.ordered && call.callback != nullptr && call.callback->WasLong();
}

// Makes the call on a thread of the pool, as soon as it has the turn. Takes it by reference: to
// move it costs more than some functions take.
Result RunLater(HostCall& call, int64_t turn) {
  // Without an interpreter no thread can be made ready, and the call ends with an error.
  if (!PythonIsRunning()) return {std::nullopt, RunHostCall(call)};
  const auto later = std::make_shared<LaterCall>(std::move(call));
  ffi::Future future = later->Begin();
  turns::RunInTurn(turn, [turn, later] {
    std::optional<ffi::Error> error = later->Run();
    turns::End(turn);  // first: XLA may go on here, for long
    later->End(std::move(error));
  });
  return {std::move(future), std::nullopt};
}

Result Handle(const XLA_FFI_CallFrame& frame) {
  const Attributes attributes(frame.attrs);
  HostCall call(frame, attributes);
  call.ReadSizes(attributes);
  if (call.is_concurrent()) call.is_timed = true;
  const bool takes_turns = call.run.takes_turns && !call.is_concurrent();
  const int64_t turn = takes_turns ? call.run.number : turns::Run::kUnknown;
  if (!MayRunHere(call) || (!takes_turns && IsWorthAThread(call)) || !turns::TryBegin(turn)) {
    return RunLater(call, turn);
  }
  std::optional<ffi::Error> error = RunHostCall(call);
  turns::End(turn);
  return {std::nullopt, std::move(error)};
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Handle);
}
