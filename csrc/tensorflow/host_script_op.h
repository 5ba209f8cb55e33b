// Script ops of functions that are partitioned.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// Defines the Python side: what the function of an op may take over.
void DefineHostScriptOp(nanobind::module_& m);

}  // namespace hostcall
