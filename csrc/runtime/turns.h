// The calls of one run of a program, one at a time. XLA makes independent calls at once where a
// program is large enough for its threads; most Python functions were never meant for that.
#pragma once

#include <cstdint>
#include <functional>

#include "xla/ffi/api/c_api.h"

namespace hostcall::turns {

// The run that a call is made in. Runs have numbers of their own, so that a call which runs another
// program does not wait for itself. `kUnknown` where XLA does not tell, and its calls do not wait.
constexpr int64_t kUnknown = -1;
int64_t RunOf(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context);

// How to find it in calls of an XLA that gives all runs one number.
struct RunFinder {
  const XLA_FFI_Api* xla;  // whose calls it is for
  int64_t (*find)(XLA_FFI_ExecutionContext* context);
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
