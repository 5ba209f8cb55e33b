// Results of callbacks, stored in XLA's buffers.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.h"
#include "gil.h"
#include "result_contract.h"

namespace hostcall {

struct HostCall;

// Returns the declaration that the buffer's program was compiled for.
DeclaredResult DeclaredAs(const Buffer& result);

// Stores what the callback, whose target and title these are, has returned. Runs user code.
void StoreResults(nanobind::handle returned, const HostCall& call, nanobind::handle target,
                  const Who& who, DeferredDecrefScope& decrefs);

// Copies an array that CheckArray has just passed, with no Python code run in between: the user may
// hold the array, and change its shape. Python's values reach XLA's memory in this file alone.
void CopyOut(nanobind::handle array, const Buffer& result);

// Converts the values that a callback returned, checks all of them, and then copies them.
void ConvertAndStore(nanobind::handle returned, const Buffers& results, const Who& who,
                     DeferredDecrefScope& decrefs);

// Returns `returned`, one value, a tuple or a list, with NumPy arrays in the place of other arrays
// in the host's memory. Runs user code.
nanobind::handle WithArraysOfHost(nanobind::handle returned, const Who& who,
                                  DeferredDecrefScope& decrefs);

// Stores results in the memory of the call's device: arrays there are copied directly, others
// through the host. Releases the GIL while it copies.
void StoreOnDevice(nanobind::handle returned, const HostCall& call, const Who& who,
                   DeferredDecrefScope& decrefs);

}  // namespace hostcall
