// A GPU for the tests: a stream for a call, and the memory of its buffers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>

namespace hostcall::fakes {

// Allocates device memory with these bytes, at an address that must not be dereferenced.
std::shared_ptr<void> DeviceMemory(const void* data, size_t size, int number = 0);

// Copies device memory to the host.
void ReadDevice(const void* address, void* to, size_t size);

// The stream of a program. Its context is current on this thread while this lives, as with XLA.
// Ends the process if a handler has not given the context back.
class Launch {
 public:
  Launch();
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  void* stream() const { return stream_; }

 private:
  void* const stream_;
};

// Defines the Python side of the device.
void DefineDevice(nanobind::module_& m);

}  // namespace hostcall::fakes
