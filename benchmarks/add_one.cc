// The function of native.py: as a C function, and as a custom call of XLA's own.
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

extern "C" void add_one(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] + 1.0f;
}

static ffi::Error Handle(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  add_one(x.typed_data(), y->typed_data(), static_cast<int64_t>(x.element_count()));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(add_one_handler, Handle,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
