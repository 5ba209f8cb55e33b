// A device whose memory a call's buffers lie in, for functions that take arrays where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arrays.h"

namespace hostcall {

// Where an array lies, in DLPack's terms, and the stream that it is ready on.
struct Place {
  static constexpr int kCpu = 1;
  static constexpr int kCuda = 2;

  int type = kCpu;
  int id = 0;
  uintptr_t stream = 0;  // a CUstream; 0 on the CPU
};

// All of it without the GIL; throws Failure.
class Device {
 public:
  // Within the device's memory.
  struct Copy {
    void* to;
    const void* from;
    size_t size;
  };

  virtual const Place& place() const = 0;

  // Has each result lie in the host's memory, for values to be written. `Store` copies them.
  virtual void Reserve(Buffers& results) = 0;

  // Whether memory is this device's, as far as it can be found out.
  virtual bool Owns(const void* memory) const = 0;

  // Waits for the streams, makes all copies on the program's stream, and waits for that.
  virtual void Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams) = 0;

 protected:
  ~Device() = default;
};

}  // namespace hostcall
