// What the tests want of a GPU: a stream for a call, and the memory of its buffers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>

namespace hostcall::fuzz {

// Memory of the device with these bytes, at an address that nobody may follow.
std::shared_ptr<void> DeviceMemory(const void* data, size_t size, int number = 0);

// Copies it to the host.
void ReadDevice(const void* address, void* to, size_t size);

// The stream of a program, whose context is current on this thread as long as this lives: XLA sees
// to it. Ends the process where a handler has not given it back.
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

}  // namespace hostcall::fuzz
