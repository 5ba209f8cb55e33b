// A GPU, for functions that take arrays where they are.
#pragma once

#include <memory>
#include <vector>

#include "cuda_driver.h"
#include "cuda_staging.h"
#include "device.h"

namespace hostcall {

class CudaDevice final : public Device {
 public:
  // Requires the context of the program to be current. `staging` must outlive this.
  CudaDevice(std::shared_ptr<const CudaDriver> driver, CudaContext context, CudaStream stream,
             Staging& staging);

  const Place& place() const override { return place_; }
  void Reserve(Buffers& results) override { staging_.Reserve(results); }
  bool Owns(const void* memory) const override;
  void Store(const std::vector<Copy>& copies, const std::vector<uintptr_t>& streams) override;

  // Makes the context of the program current: libraries take their device from it.
  void Activate() const { driver_->SetCurrentContext(context_); }

 private:
  const std::shared_ptr<const CudaDriver> driver_;
  const CudaContext context_;
  Staging& staging_;
  const Place place_;
};

}  // namespace hostcall
