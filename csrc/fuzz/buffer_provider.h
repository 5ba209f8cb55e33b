// Provides the memory of call frames made by hand, and keeps it where arrays do.
#pragma once

#include <cstdint>

#include "frame.h"
#include "runtime/buffer_provider.h"

namespace hostcall::fuzz {

// As long as this lives, the memory of arrays may lie in the call's buffers.
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

// How often memory is held now.
int64_t Holds();

}  // namespace hostcall::fuzz
