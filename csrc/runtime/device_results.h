// What a function returns whose arrays stay on a device.
#pragma once

#include <nanobind/nanobind.h>

#include "call.h"
#include "deferred_decref.h"
#include "result_contract.h"

namespace hostcall {

// `returned` with arrays of NumPy's in the place of others that lie in the host's memory; it may be
// one value, a tuple or a list. Runs code of the user's.
nanobind::handle WithArraysOfHost(nanobind::handle returned, const Who& who,
                                  DeferredDecrefScope& decrefs);

// Stores results in the memory of the call's device: those that lie there go from there, and others
// through the host. Releases the GIL while it copies.
void StoreOnDevice(nanobind::handle returned, const HostCall& call, const Who& who,
                   DeferredDecrefScope& decrefs);

// Defines how Python says what was returned.
void DefineDeviceResults(nanobind::module_& m);

}  // namespace hostcall
