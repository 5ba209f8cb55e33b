// Counts the memory that the runtime asks the heap for. The functions are there in processes that
// have preloaded the library, and null in others.
#pragma once

#include <cstdint>

extern "C" {

// Counts on this thread from now on, from 0, or no longer.
__attribute__((weak)) void hostcall_count_allocations(bool on);

// How many there were on this thread.
__attribute__((weak)) int64_t hostcall_counted_allocations();
}
