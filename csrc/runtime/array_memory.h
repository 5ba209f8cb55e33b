// Memory for the arrays that callbacks are given.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.h"

namespace hostcall {

// An array of NumPy's own class, of arbitrary values. A large one lies in memory that comes back
// when the array is gone, for the next one of its size: what the C library gives anew for each call
// the system has to map and clear, which takes longer than the copy into it. Some of it is kept, at
// most kMostKept bytes. Throws what Python has raised.
nanobind::object EmptyArray(Dims dims, nanobind::object descr);

constexpr size_t kMostKept = size_t{1} << 28;

// How many bytes are kept now. Does not want the GIL.
size_t KeptArrayMemory();

}  // namespace hostcall
