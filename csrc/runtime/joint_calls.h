// Calls that the devices of one program make together. The part of one device may not end before
// those of the others: if a call fails, no other device may go on and wait in a collective for the
// one that has failed. XLA ends the process for that.
#pragma once

#include "xla/ffi/api/ffi.h"

// Custom call target "hostcall_joint", FFI API 0.2, platform Host. Operands, results and attributes
// are those of "hostcall" (handler.h), without bounded sizes, with one more operand in front:
//   shard    s32: the number of this device's shard, from 0 on
// and two more attributes:
//   shards   i64: the number of shards. The callback is called once for each.
//   devices  i64: the number of devices that make the custom call. Devices with the same shard have
//            the same values, and all get the results of its call.
// No call begins before all devices have arrived, and no device goes on before all calls have
// ended. The calls are made in the order of the shards; those of concurrent callbacks overlap.
//
// If one fails, all devices get its error, and so do the devices that arrive or wait at other
// custom calls of this kind in the same run. With one device nothing waits, but an error still
// counts for the whole run.
extern "C" XLA_FFI_Error* HostcallJointHandler(XLA_FFI_CallFrame* frame);
