// Arrays of other libraries, which come by DLPack.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

// Defines the class by which Python inspects one.
void DefineForeignArrays(nanobind::module_& m);

}  // namespace hostcall
