// A CUDA driver without a GPU, in which misuse ends the process. It has the functions of the real
// one that the runtime uses; those below are the tests' own.
//
// A device's memory is the host's, but an address of it is a mere number: whoever follows one
// crashes. What a stream is given is put off until somebody waits for the stream.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Memory of a device, filled with `data`. `release` must be called once for each. Programs run on
// the device with the number 0.
uint64_t fake_cuda_allocate(const void* data, size_t size, int number);
void fake_cuda_release(uint64_t address);

// What lies in it now, whatever streams have been given.
void fake_cuda_read(uint64_t address, void* to, size_t size);

// Has a stream write to the memory, as a kernel would: when somebody waits for it.
void fake_cuda_write_later(uint64_t address, const void* data, size_t size, void* stream);

// How many pieces of memory there are.
size_t fake_cuda_allocations();

// How much of the host's memory is pinned, and how often that was done since this was asked last.
void fake_cuda_pinned(size_t* bytes, size_t* times);

// A new stream. `destroy` forgets what it has not done, and says how much that was.
void* fake_cuda_create_stream();
size_t fake_cuda_destroy_stream(void* stream);

// Makes the context of the device, or another one, current on this thread; or says whether the
// first of them is.
void fake_cuda_activate(bool other);
bool fake_cuda_is_active();

// Lets calls of the function fail with the code: those from the `first`-th on, `count` of them.
void fake_cuda_fail(const char* function, int first, int count, int code);
}
