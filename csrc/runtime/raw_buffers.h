// The buffers of a call frame, in place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "failure.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

inline bool IsToken(const XLA_FFI_Buffer& buffer) { return buffer.dtype == XLA_FFI_DataType_TOKEN; }

// Returns the size of a buffer without unknown sizes.
inline size_t BytesOf(const XLA_FFI_Buffer& buffer) {
  size_t bytes = xla::ffi::ByteWidth(static_cast<xla::ffi::DataType>(buffer.dtype));
  for (int64_t i = 0; i < buffer.rank; ++i) bytes *= static_cast<size_t>(buffer.dims[i]);
  return bytes;
}

// The addresses of buffers in the frame. The FFI's own way to a buffer goes through a diagnostic
// and an optional for each, which costs a call more than its use of the buffers.
class RawBuffers {
 public:
  class Iterator {
   public:
    explicit Iterator(void* const* at) : at_(at) {}
    XLA_FFI_Buffer* operator*() const { return static_cast<XLA_FFI_Buffer*>(*at_); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    void* const* at_;
  };

  // Throw Failure if something is no buffer.
  explicit RawBuffers(const XLA_FFI_Args& args) {
    Take(args.types, args.size, XLA_FFI_ArgType_BUFFER, args.args);
  }
  explicit RawBuffers(const XLA_FFI_Rets& rets) {
    Take(rets.types, rets.size, XLA_FFI_RetType_BUFFER, rets.rets);
  }

  size_t size() const { return size_; }
  XLA_FFI_Buffer* operator[](size_t i) const { return static_cast<XLA_FFI_Buffer*>(buffers_[i]); }
  Iterator begin() const { return Iterator(buffers_); }
  Iterator end() const { return Iterator(buffers_ + size_); }

  // Returns the buffers without the token, which comes last.
  RawBuffers WithoutToken() const {
    RawBuffers others = *this;
    if (size_ > 0 && IsToken(*(*this)[size_ - 1])) --others.size_;
    return others;
  }

 private:
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
