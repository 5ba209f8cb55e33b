// The typed-FFI handlers, through which XLA enters the runtime.
#pragma once

#include "xla/ffi/api/ffi.h"

// Custom call target "hostcall", FFI API 0.2, platform Host. Attributes:
//   callback          i64: the id of the callback in the registry
//   dynamic_operands  array<i64>: pairs (operand, dimension), one for each bounded dimension
//   dynamic_results   array<i64>: the same for the results
//   sub_byte_operands   array<i64>: pairs (operand, element type), where the callback sees a type
//                     narrower than the buffer's: XLA packs int4, two in a byte, so that it is
//                     passed as int8
//   sub_byte_results    array<i64>: the same for the results
// Operands: the callback's own, then an int32 true size for each pair of `dynamic_operands`, then
// perhaps a token. Results: likewise.
extern "C" XLA_FFI_Error* HostcallHandler(XLA_FFI_CallFrame* frame);

// Does the same for platform CUDA, with the buffers in the memory of the device (cuda.cc). XLA must
// not record it in a CUDA graph, which would run without calling it again: it has no traits.
extern "C" XLA_FFI_Error* HostcallCudaHandler(XLA_FFI_CallFrame* frame);

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
//
// In a program for the devices of several processes, a third attribute is there:
//   process  i64: the number of this process
// `shards` and `devices` are then those of this process. A device whose shard another process calls
// has the shard -1, and gets zeros. A last result more, u8[n], gets the report of an error (see
// reports.h), and zeros where all goes well. A call that fails ends no program: the devices must
// not leave before those of other processes know of it, which would wait for them in a collective.
extern "C" XLA_FFI_Error* HostcallJointHandler(XLA_FFI_CallFrame* frame);

// Custom call target "hostcall_reported", FFI API 0.2, platform Host. Attribute:
//   process  i64: the number of this process
// Operand: a report. Result: an s32, 0. Ends the program with the error of the report, if any, as a
// failed joint call would.
extern "C" XLA_FFI_Error* HostcallReportedHandler(XLA_FFI_CallFrame* frame);

// Custom call target "hostcall_raise", FFI API 0.2, platform Host. Its operands are failures, and
// perhaps a token. An int32 is the number of an error, or 0 if there is none; the bools stand for
// the first errors, in their order. Its attribute `errors` has the errors, between record
// separators: the number and the status code of each and its message, between colons. Ends the
// program with the error of the first failure.
extern "C" XLA_FFI_Error* HostcallRaiseHandler(XLA_FFI_CallFrame* frame);

// Custom call target "hostcall_any", FFI API 0.2, platform Host. Its operands are integers of 32 or
// 64 bits, and a limit of the same dtype. Its result tells whether any of the integers is what the
// attribute `kind` says: "outside" [0, limit), "equal" to the limit, or "at_least" the limit.
extern "C" XLA_FFI_Error* HostcallAnyHandler(XLA_FFI_CallFrame* frame);

// Custom call target "hostcall_native", FFI API 0.2, platform Host. Attribute:
//   callback  i64: the id of the function in the table
// Operands and results: the function's own, and perhaps a token. All have static shapes, and types
// with the memory layout that the function wants.
extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame);
