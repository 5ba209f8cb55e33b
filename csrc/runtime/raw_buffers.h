// The buffers of a call frame as they lie in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "failure.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// The FFI's own way to a buffer goes through a diagnostic and an optional for each, which costs a
// call more than what it then does with the buffers. So this takes the addresses from the frame.
class RawBuffers {
 public:
  explicit RawBuffers(const xla::ffi::RemainingArgs& args) {
    const XLA_FFI_Args* raw = Args::Of(args);
    Take(raw->types, raw->size, XLA_FFI_ArgType_BUFFER, raw->args);
  }
  explicit RawBuffers(const xla::ffi::RemainingRets& rets) {
    const XLA_FFI_Rets* raw = Rets::Of(rets);
    Take(raw->types, raw->size, XLA_FFI_RetType_BUFFER, raw->rets);
  }

  size_t size() const { return size_; }
  XLA_FFI_Buffer* operator[](size_t i) const { return static_cast<XLA_FFI_Buffer*>(buffers_[i]); }

 private:
  // The FFI shows its frame to what derives from these.
  struct Args : xla::ffi::RemainingArgs {
    static const XLA_FFI_Args* Of(const RemainingArgs& args) {
      constexpr auto kGet = &Args::args;
      return (args.*kGet)();
    }
  };
  struct Rets : xla::ffi::RemainingRets {
    static const XLA_FFI_Rets* Of(const RemainingRets& rets) {
      constexpr auto kGet = &Rets::rets;
      return (rets.*kGet)();
    }
  };

  template <typename Type>
  void Take(const Type* types, int64_t size, Type wanted, void* const* buffers) {
    for (int64_t i = 0; i < size; ++i) {
      if (types[i] != wanted) throw Failure::Malformed();
    }
    size_ = static_cast<size_t>(size);
    buffers_ = buffers;
  }

  size_t size_ = 0;
  void* const* buffers_ = nullptr;
};

}  // namespace hostcall
