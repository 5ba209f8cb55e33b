// A CUDA driver without a GPU, in which misuse ends the process. It has the functions of the real
// one that the runtime uses; the functions below are the tests' own.
//
// A device's memory is the host's, but its address is a mere number: following it crashes. The work
// of a stream is put off until a caller waits for the stream.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Allocates device memory, filled with `data`. Call `release` once for each. Programs run on the
// device with the number 0.
uint64_t fake_cuda_allocate(const void* data, size_t size, int number);
void fake_cuda_release(uint64_t address);

// Reads the memory as it is now, without the work that streams have put off.
void fake_cuda_read(uint64_t address, void* to, size_t size);

// Makes a stream write to the memory, as a kernel would: when a caller waits for the stream.
void fake_cuda_write_later(uint64_t address, const void* data, size_t size, void* stream);

// Returns the number of pieces of device memory.
size_t fake_cuda_allocations();

// Returns the bytes of pinned host memory, and the times that some was pinned since the last call.
void fake_cuda_pinned(size_t* bytes, size_t* times);

// Creates a stream. `destroy` drops the work that is not done, and returns how much that was.
void* fake_cuda_create_stream();
size_t fake_cuda_destroy_stream(void* stream);

// Makes the context of the device, or another one, current on this thread; `is_active` returns
// whether the device's is.
void fake_cuda_activate(bool other);
bool fake_cuda_is_active();

// Makes calls of the function fail with the code: those from the `first`-th on, `count` of them.
void fake_cuda_fail(const char* function, int first, int count, int code);
}
