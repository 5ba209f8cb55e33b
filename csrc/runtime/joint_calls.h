// Calls that the devices of one program make together, as the part of one device may not end before
// those of the others: where a call fails, no other device must go on and wait in a collective for
// the one that has failed. XLA ends the process for that.
#pragma once

#include "xla/ffi/api/ffi.h"

// Custom call target "hostcall_joint", FFI API 0.2, platform Host. Operands, results and attributes
// are those of "hostcall" (handler.h), without bounded sizes, with one more operand in front:
//   shard    s32: the number of the shard that this device has, from 0 on
// and two more attributes:
//   shards   i64: how many shards there are. The callback is called once for each.
//   devices  i64: how many devices make the custom call. Those of one shard have the same values,
//            and all get the results of its call.
// Nothing is called before all devices have arrived, and none goes on before all calls have ended.
// The calls are made in the order of the shards, those of concurrent callbacks beside one another.
//
// Where one fails, all devices get its error, and so do those that arrive or wait at other custom
// calls of this kind in the same run. With one device nobody waits, and the error is all the same
// that of the run.
extern "C" XLA_FFI_Error* HostcallJointHandler(XLA_FFI_CallFrame* frame);
