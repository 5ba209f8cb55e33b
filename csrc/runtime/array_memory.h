// Memory for the arrays that callbacks get.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.h"

namespace hostcall {

// Returns an array of NumPy's own class, of arbitrary values. The memory of a large one comes back
// when the array is gone, for the next one of its size: the system has to map and clear memory that
// the C library gives anew for each call, which takes longer than the copy into it. At most
// kMostKept bytes are kept. Throws Python's exceptions.
nanobind::object EmptyArray(Dims dims, nanobind::object descr);

constexpr size_t kMostKept = size_t{1} << 28;

// The same memory for other modules: see RuntimeApi.
void* TakeMemory(size_t size);
void GiveMemory(void* data);

// Returns the number of bytes kept now. Does not need the GIL.
size_t KeptArrayMemory();

}  // namespace hostcall
