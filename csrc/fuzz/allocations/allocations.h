// A count of the runtime's heap allocations. The functions exist in processes that have preloaded
// the library, and are null in others.
#pragma once

#include <cstdint>

extern "C" {

// Starts counting on this thread, from 0, or stops.
__attribute__((weak)) void hostcall_count_allocations(bool on);

// Returns the number of allocations on this thread.
__attribute__((weak)) int64_t hostcall_counted_allocations();
}
