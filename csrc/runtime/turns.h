// Turns of the calls of one run, one at a time. XLA makes independent calls at once if a program is
// large enough for its threads; most Python functions were never meant for that.
#pragma once

#include <cstdint>
#include <functional>

#include "host_api.h"

namespace hostcall::turns {

// Returns the run of a call.
Run RunOf(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context);

// Takes the turn in a run, if no other call has it. The holder gives it back by `End`.
bool TryBegin(int64_t run);

// Runs `task` on the pool once it has the turn. The task gives it back by `End`. Throws if no
// thread can be started.
void RunInTurn(int64_t run, std::function<void()> task);

// Gives the turn to the call that has waited longest.
void End(int64_t run) noexcept;

}  // namespace hostcall::turns
