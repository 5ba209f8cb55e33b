// Memory that comes back, for values that other modules keep in it.
#pragma once

#include <cstddef>

namespace hostcall {

// The memory of large arrays (array_memory.h), for those who make large values otherwise, such as
// tensors. Neither wants the GIL.
struct MemoryApi {
  // Memory of arbitrary values, at the beginning of a page. Null for sizes that are not worth it,
  // and where there is none.
  void* (*take)(size_t size);

  // Takes back what `take` gave.
  void (*give)(void* data);
};

// Lives as long as the process.
const MemoryApi* GetMemoryApi();

}  // namespace hostcall
