// Native code for the tests of the custom call "hostcall_native".
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall::fakes {

// Gives Python the addresses of the code, and functions that hold a call of it up.
void DefineNativeCode(nanobind::module_& m);

}  // namespace hostcall::fakes
