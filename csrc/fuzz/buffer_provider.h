// A provider of the memory of call frames made by hand, which keeps it while arrays use it.
#pragma once

#include <cstdint>

#include "frame.h"
#include "runtime/buffer_provider.h"

namespace hostcall::fuzz {

// A scope in which the memory of arrays may lie in the call's buffers.
class ProvidedBuffers {
 public:
  explicit ProvidedBuffers(const Call& call);
  ~ProvidedBuffers();
  ProvidedBuffers(const ProvidedBuffers&) = delete;
  ProvidedBuffers& operator=(const ProvidedBuffers&) = delete;

 private:
  const Call& call_;
};

const BufferProviderApi* GetBufferProvider();

// Returns the number of holds of memory now.
int64_t Holds();

}  // namespace hostcall::fuzz
