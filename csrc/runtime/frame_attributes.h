// The attributes of a custom call, as its handler reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "failure.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

using Pairs = xla::ffi::Span<const int64_t>;

// A reader of attributes, one by one, in the order of their names, as XLA sorts them. The FFI's own
// binding compares names letter by letter, which costs a call more than everything else in its
// frame.
class AttributeReader {
 public:
  explicit AttributeReader(const XLA_FFI_Attrs& attrs) : attrs_(attrs) {}

  template <size_t kSize, typename T>
  AttributeReader& Take(const char (&name)[kSize], T& value) {
    is_right_ = is_right_ && IsNext(name) && Read(attrs_.types[next_], attrs_.attrs[next_], value);
    ++next_;
    return *this;
  }

  // Does the same for an attribute that not all custom calls have.
  template <size_t kSize, typename T>
  AttributeReader& TakeAny(const char (&name)[kSize], T& value) {
    return IsNext(name) ? Take(name, value) : *this;
  }

  // Throws Failure unless all attributes were taken and had the right kinds.
  void End() const {
    if (is_right_ && next_ == attrs_.size) return;
    throw Failure::InvalidArgument("hostcall: not the attributes of this custom call.");
  }

 private:
  static bool Read(XLA_FFI_AttrType type, const void* attribute, int64_t& value) {
    if (type != XLA_FFI_AttrType_SCALAR) return false;
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attribute);
    if (scalar->dtype != XLA_FFI_DataType_S64) return false;
    value = *static_cast<const int64_t*>(scalar->value);
    return true;
  }

  template <typename T>
  static bool Read(XLA_FFI_AttrType type, const void* attribute, xla::ffi::Span<const T>& value) {
    constexpr auto kDtype =
        std::is_same_v<T, int64_t> ? XLA_FFI_DataType_S64 : XLA_FFI_DataType_S32;
    if (type != XLA_FFI_AttrType_ARRAY) return false;
    const auto* array = static_cast<const XLA_FFI_Array*>(attribute);
    if (array->dtype != kDtype) return false;
    value = xla::ffi::Span<const T>(static_cast<const T*>(array->data), array->size);
    return true;
  }

  static bool Read(XLA_FFI_AttrType type, const void* attribute, std::string_view& value) {
    if (type != XLA_FFI_AttrType_STRING) return false;
    const auto* text = static_cast<const XLA_FFI_ByteSpan*>(attribute);
    value = std::string_view(text->ptr, text->len);
    return true;
  }

  template <size_t kSize>
  bool IsNext(const char (&name)[kSize]) const {
    return next_ < attrs_.size && Is(*attrs_.names[next_], name);
  }

  // Compares words, which overlap: for names of other lengths than a word's, the compiler would
  // call a function.
  template <size_t kSize>
  static bool Is(const XLA_FFI_ByteSpan& span, const char (&name)[kSize]) {
    constexpr size_t kLength = kSize - 1, kWord = sizeof(uint64_t);
    if constexpr (kLength < kWord) {
      return span.len == kLength && std::memcmp(span.ptr, name, kLength) == 0;
    } else {
      if (span.len != kLength) return false;
      bool same = true;
      for (size_t i = 0; i + kWord < kLength; i += kWord) {
        same = same && WordAt(span.ptr + i) == WordAt(name + i);
      }
      return same && WordAt(span.ptr + kLength - kWord) == WordAt(name + kLength - kWord);
    }
  }

  static uint64_t WordAt(const char* text) {
    uint64_t word;
    std::memcpy(&word, text, sizeof(word));
    return word;
  }

  const XLA_FFI_Attrs& attrs_;
  int64_t next_ = 0;
  bool is_right_ = true;
};

// The attributes of the custom calls of callbacks; see handler.h.
struct Attributes {
  // Throws Failure if some are missing, or others are there.
  explicit Attributes(const XLA_FFI_Attrs& attrs) {
    AttributeReader(attrs)
        .Take("callback", callback)
        .TakeAny("devices", devices)
        .Take("dynamic_operands", dynamic_operands)
        .Take("dynamic_results", dynamic_results)
        .TakeAny("process", process)
        .TakeAny("results", results)
        .TakeAny("shards", shards)
        .Take("sub_byte_operands", sub_byte_operands)
        .Take("sub_byte_results", sub_byte_results)
        .End();
  }

  int64_t callback = 0;
  Pairs dynamic_operands;
  Pairs dynamic_results;
  Pairs sub_byte_operands;
  Pairs sub_byte_results;
  Pairs results;                    // of early calls
  int64_t shards = 0, devices = 0;  // of joint calls
  int64_t process = -1;             // of joint calls in programs for several processes
};

}  // namespace hostcall
