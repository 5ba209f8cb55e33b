#include "allocations.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
}

namespace {

thread_local bool counting = false;
thread_local int64_t counted = 0;

// Returns true for the runtime, and for the C++ library, which it alone uses during a call. Python
// and NumPy allocate for the objects that they were asked for.
bool IsOfRuntime(void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::strstr(info.dli_fname, "_runtime.") != nullptr ||
         std::strstr(info.dli_fname, "libstdc++") != nullptr;
}

void Count(void* caller) {
  if (!counting) return;
  counting = false;  // the search for the caller may allocate
  counted += IsOfRuntime(caller) ? 1 : 0;
  counting = true;
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* Aligned(size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  return posix_memalign(&memory, static_cast<size_t>(alignment), size) == 0 ? memory : nullptr;
}

}  // namespace

#define HERE __builtin_return_address(0)

extern "C" {

void hostcall_count_allocations(bool on) {
  if (on) counted = 0;
  counting = on;
}

int64_t hostcall_counted_allocations() { return counted; }

void* malloc(size_t size) {
  Count(HERE);
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  Count(HERE);
  return __libc_calloc(count, size);
}

void* realloc(void* memory, size_t size) {
  Count(HERE);
  return __libc_realloc(memory, size);
}
}

void* operator new(size_t size) {
  Count(HERE);
  return OrThrow(__libc_malloc(size));
}

void* operator new[](size_t size) {
  Count(HERE);
  return OrThrow(__libc_malloc(size));
}

void* operator new(size_t size, std::align_val_t alignment) {
  Count(HERE);
  return OrThrow(Aligned(size, alignment));
}

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  Count(HERE);
  return __libc_malloc(size);
}
