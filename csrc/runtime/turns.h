// The calls of one run of a program, one at a time. XLA makes independent calls at once where a
// program is large enough for its threads; most Python functions were never meant for that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "xla/ffi/api/ffi.h"

namespace hostcall::turns {

// No call waits in a run of this number: XLA does not tell the run.
constexpr int64_t kUnknown = -1;

// The run that a call is made in. Runs have numbers of their own, so that a call which runs another
// program does not wait for itself.
struct Run {
  int64_t number = kUnknown;
  bool takes_turns = true;  // false where tokens order all calls that must not overlap
};

Run RunOf(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context);

// How to find it in calls of an XLA that gives all runs one number.
struct RunFinder {
  const XLA_FFI_Api* xla;  // whose calls it is for
  Run (*find)(XLA_FFI_ExecutionContext* context);
};

void SetRunFinder(const RunFinder* finder);

// Takes the turn in a run, where no other call has it. Who has it gives it back by `End`.
bool TryBegin(int64_t run);

// Runs `task` on the pool once it has the turn. The task gives it back by `End`. Throws where no
// thread can be started.
void RunInTurn(int64_t run, std::function<void()> task);

// Gives the turn to the call that has waited longest.
void End(int64_t run) noexcept;

}  // namespace hostcall::turns

// What a handler's binding gives for `Ctx<hostcall::turns::Run>()`.
template <>
struct xla::ffi::CtxDecoding<hostcall::turns::Run> {
  using Type = hostcall::turns::Run;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine&) {
    return hostcall::turns::RunOf(api, context);
  }
};
