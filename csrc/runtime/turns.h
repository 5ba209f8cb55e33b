// Turns of the calls of one run, one at a time. XLA makes independent calls at once if a program is
// large enough for its threads; most Python functions were never meant for that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "xla/ffi/api/ffi.h"

namespace hostcall::turns {

// The number of a run that XLA does not tell; no call waits in it.
constexpr int64_t kUnknown = -1;

// The run of a call. Each run has its own number, so that a call which runs another program does
// not wait for itself.
struct Run {
  int64_t number = kUnknown;
  bool takes_turns = true;  // false if tokens order all calls that must not overlap
};

Run RunOf(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context);

// A finder of runs for an XLA that gives all runs one number.
struct RunFinder {
  const XLA_FFI_Api* xla;  // finds the runs of its calls
  Run (*find)(XLA_FFI_ExecutionContext* context);
};

void SetRunFinder(const RunFinder* finder);

// Takes the turn in a run, if no other call has it. The holder gives it back by `End`.
bool TryBegin(int64_t run);

// Runs `task` on the pool once it has the turn. The task gives it back by `End`. Throws if no
// thread can be started.
void RunInTurn(int64_t run, std::function<void()> task);

// Gives the turn to the call that has waited longest.
void End(int64_t run) noexcept;

}  // namespace hostcall::turns

// The decoding of `Ctx<hostcall::turns::Run>()` in a handler's binding.
template <>
struct xla::ffi::CtxDecoding<hostcall::turns::Run> {
  using Type = hostcall::turns::Run;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine&) {
    return hostcall::turns::RunOf(api, context);
  }
};
