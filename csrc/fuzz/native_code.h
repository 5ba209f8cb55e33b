// Native code for the tests of the custom call "hostcall_native".
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall::fuzz {

// Tells Python where the code is, and how to hold a call of it up.
void DefineNativeCode(nanobind::module_& m);

}  // namespace hostcall::fuzz
