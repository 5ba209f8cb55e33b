// A device with a call's buffers in its memory, for functions that take arrays there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arrays.h"

namespace hostcall {

// The location of an array, in DLPack's terms, and the stream that it is ready on.
struct Place {
  static constexpr int kCpu = 1;
  static constexpr int kCuda = 2;

  int type = kCpu;
  int id = 0;
  uintptr_t stream = 0;  // a CUstream; 0 on the CPU
};

// The device. Call all members without the GIL; they throw Failure.
class Device {
 public:
  // A copy within the device's memory.
  struct Copy {
    void* to;
    const void* from;
    size_t size;
  };

  virtual const Place& place() const = 0;

  // Gives each result host memory, for values to be written. `Store` copies them.
  virtual void Reserve(Buffers& results) = 0;

  // Returns whether memory is this device's, as far as can be found out.
  virtual bool Owns(const void* memory) const = 0;

  // Waits for the streams, makes all copies on the program's stream, and waits for that.
  virtual void Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams) = 0;

 protected:
  ~Device() = default;
};

}  // namespace hostcall
