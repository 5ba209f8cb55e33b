// Calls that go on while their program does: one custom call begins them, a later one takes the
// results. In between XLA computes what does not need them, and begins others.
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
// "hostcall_gate" does nothing. XLA cannot run what takes its result, an s64, before what it takes
// has run: so calls are begun, and other things computed, before anything waits for results.
//
// "hostcall_done" takes a handle, and then anything. Its results are those of the call that the
// handle stands for, each of which is taken once.
extern "C" XLA_FFI_Error* HostcallStartHandler(XLA_FFI_CallFrame* frame);
extern "C" XLA_FFI_Error* HostcallGateHandler(XLA_FFI_CallFrame* frame);
extern "C" XLA_FFI_Error* HostcallDoneHandler(XLA_FFI_CallFrame* frame);

namespace hostcall {

// A run of a program with such calls begins. Returns its number, from which it ends.
//
// Where a program fails, nobody takes the results of what it has begun. These calls are let go of
// when all runs have ended that were under way when they began. So whoever runs programs has to say
// when.
int64_t BeginRun();
void EndRun(int64_t run);

// The same for other extension modules.
struct EarlyCallsApi {
  int64_t (*begin_run)();
  void (*end_run)(int64_t run);
};

const EarlyCallsApi* GetEarlyCallsApi();

// How many calls there are whose results nobody has taken.
int64_t CountEarlyCalls();

}  // namespace hostcall
