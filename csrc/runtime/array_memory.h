// Memory that is about to be filled. The system has to map and clear it first, which takes longer
// than a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "arrays.h"

namespace hostcall {

// Returns an array of NumPy's own class, of arbitrary values. The memory of a large one comes back
// when the array is gone, for the next one of its size: the C library would give it anew for each
// call. At most kMostKept bytes are kept. Throws Python's exceptions.
nanobind::object EmptyArray(Dims dims, nanobind::object descr);

constexpr size_t kMostKept = size_t{1} << 28;

// The same memory for other modules: see RuntimeApi.
void* TakeMemory(size_t size);
void GiveMemory(void* data);

// Returns the number of bytes kept now. Does not need the GIL.
size_t KeptArrayMemory();

// Asks the system for huge pages in memory that was never touched. Page by page, the system takes
// longer than the copy into the memory. NumPy does the same for arrays from this size on.
inline void ExpectToFill(void* data, size_t size) {
#ifdef MADV_HUGEPAGE
  constexpr size_t kWorthAsking = size_t{1} << 22;
  if (size < kWorthAsking) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // if refused, it is slower
#else
  (void)data, (void)size;
#endif
}

// Does the same for a program's result. The C library keeps freed memory of up to 32 MiB, and maps
// larger memory anew for each call (DEFAULT_MMAP_THRESHOLD_MAX). Huge pages in memory that it keeps
// cost more than they save: it trims them off its heap, and each is cleared whole when the heap
// grows again.
inline void ExpectToFillResult(void* data, size_t size) {
  constexpr size_t kMostFreed = size_t{1} << 25;
  if (size > kMostFreed) ExpectToFill(data, size);
}

}  // namespace hostcall
