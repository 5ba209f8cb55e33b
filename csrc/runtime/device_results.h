// Results of functions whose arrays stay on a device.
#pragma once

#include <nanobind/nanobind.h>

#include "call.h"
#include "deferred_decref.h"
#include "result_contract.h"

namespace hostcall {

// Returns `returned`, one value, a tuple or a list, with NumPy arrays in the place of other arrays
// in the host's memory. Runs user code.
nanobind::handle WithArraysOfHost(nanobind::handle returned, const Who& who,
                                  DeferredDecrefScope& decrefs);

// Stores results in the memory of the call's device: arrays there are copied directly, others
// through the host. Releases the GIL while it copies.
void StoreOnDevice(nanobind::handle returned, const HostCall& call, const Who& who,
                   DeferredDecrefScope& decrefs);

}  // namespace hostcall
