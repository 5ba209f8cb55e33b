// Early calls, which run beside their program: one custom call begins them, a later one takes the
// results. In between XLA computes everything that does not need them, and begins others.
#pragma once

#include <cstdint>

#include "xla/ffi/api/ffi.h"

// Three custom call targets, FFI API 0.2, platform Host.
//
// "hostcall_start" begins a call without side effects. Operands and attributes are those of
// "hostcall" (handler.h), with one more attribute:
//   results           array<i64>: for each result, the true sizes included, its element type, its
//                     rank and its sizes
// Its result is an s64, the handle.
//
// "hostcall_gate" does nothing. XLA runs the consumers of its result, an s64, only after the
// producers of its operands: so calls are begun, and other things computed, before anything waits
// for results.
//
// "hostcall_done" takes a handle, and then any other operands. It returns the results of the call
// with this handle, once.
extern "C" XLA_FFI_Error* HostcallStartHandler(XLA_FFI_CallFrame* frame);
extern "C" XLA_FFI_Error* HostcallGateHandler(XLA_FFI_CallFrame* frame);
extern "C" XLA_FFI_Error* HostcallDoneHandler(XLA_FFI_CallFrame* frame);

namespace hostcall {

// Begins a run of a program with early calls. Returns the number that ends it.
//
// If a program fails, nothing takes the results of the calls that it has begun. These calls are
// dropped when all runs have ended that were under way when they began. So all code that runs
// programs has to report each run.
int64_t BeginRun();
void EndRun(int64_t run);

// Returns the number of early calls whose results were not taken.
int64_t CountEarlyCalls();

}  // namespace hostcall
