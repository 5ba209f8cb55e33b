// Script ops of partitioned functions.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// Defines the Python side: facts about the op that a thread runs, and the hook for refusals.
void DefineHostScriptOp(nanobind::module_& m);

}  // namespace hostcall
