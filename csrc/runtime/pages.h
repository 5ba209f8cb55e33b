// Memory of a program's that is about to be filled.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace hostcall {

// Has the system give memory that nobody has touched yet in huge pages, where it can. Page by page
// this takes more time than copying into it. NumPy does the same for arrays of this size on.
inline void ExpectToFill(void* data, size_t size) {
#ifdef MADV_HUGEPAGE
  constexpr size_t kWorthAsking = size_t{1} << 22;
  if (size < kWorthAsking) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // where not, it is slower
#else
  (void)data, (void)size;
#endif
}

// The same for a program's result. The C library keeps memory of up to 32 MiB once it has been
// given back, and maps what is larger anew for each call (DEFAULT_MMAP_THRESHOLD_MAX). Huge pages
// in what it keeps cost more than they save: it trims them off its heap, and each is cleared whole
// when the heap grows again.
inline void ExpectToFillResult(void* data, size_t size) {
  constexpr size_t kMostKept = size_t{1} << 25;
  if (size > kMostKept) ExpectToFill(data, size);
}

}  // namespace hostcall
