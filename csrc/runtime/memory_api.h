// Recycled memory for values that other modules keep in it.
#pragma once

#include <cstddef>

namespace hostcall {

// The memory of large arrays (array_memory.h), for modules that make other large values, such as
// tensors. Neither function needs the GIL.
struct MemoryApi {
  // Returns memory of arbitrary values, at the beginning of a page. Returns null for sizes that are
  // not worth it, and if memory is exhausted.
  void* (*take)(size_t size);

  // Takes back memory from `take`.
  void (*give)(void* data);
};

// Returns the functions, which live as long as the process.
const MemoryApi* GetMemoryApi();

}  // namespace hostcall
