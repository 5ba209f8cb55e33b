// A GPU with a call's buffers in its memory, for functions that take arrays where they are.
#pragma once

#include <memory>
#include <vector>

#include "arrays.h"
#include "cuda_driver.h"
#include "cuda_staging.h"

namespace hostcall {

// Call all members without the GIL; they throw Failure.
class CudaDevice {
 public:
  // A copy within the device's memory.
  struct Copy {
    void* to;
    const void* from;
    size_t size;
  };

  // Requires the context of the program to be current. `staging` must outlive this.
  CudaDevice(std::shared_ptr<const CudaDriver> driver, CudaContext context, CudaStream stream,
             Staging& staging);

  const Place& place() const { return place_; }

  // Gives each result host memory, for values to be written. `Store` copies them.
  void Reserve(Buffers& results) { staging_.Reserve(results); }

  // Returns whether memory is this device's, as far as can be found out.
  bool Owns(const void* memory) const { return driver_->DeviceOf(memory) == place_.id; }

  // Waits for the streams, makes all copies on the program's stream, and waits for that.
  void Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams);

  // Makes the context of the program current: libraries take their device from it.
  void Activate() const { driver_->SetCurrentContext(context_); }

 private:
  const std::shared_ptr<const CudaDriver> driver_;
  const CudaContext context_;
  Staging& staging_;
  const Place place_;
};

}  // namespace hostcall
