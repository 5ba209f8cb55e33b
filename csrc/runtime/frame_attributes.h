// The attributes of a custom call, as its handler reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "xla/ffi/api/ffi.h"

namespace hostcall {

using Pairs = xla::ffi::Span<const int64_t>;

// The attributes that all custom calls of callbacks have; see handler.h.
struct Attributes {
  int64_t callback = 0;
  Pairs dynamic_operands;
  Pairs dynamic_results;
  Pairs sub_byte_operands;
  Pairs sub_byte_results;
};

// A reader of attributes, one by one, in the order of their names, as XLA sorts them: numbers, and
// arrays of numbers. The FFI's own binding compares names letter by letter, which costs a call more
// than everything else in its frame.
class AttributeReader {
 public:
  explicit AttributeReader(const XLA_FFI_Attrs& attrs) : attrs_(attrs) {}

  template <size_t kSize, typename T>
  AttributeReader& Take(const char (&name)[kSize], T& value) {
    const int64_t index = next_++;
    is_right_ = is_right_ && index < attrs_.size && Is(*attrs_.names[index], name) &&
                Read(attrs_.types[index], attrs_.attrs[index], value);
    return *this;
  }

  // Returns true if all attributes were taken and had the right kinds.
  bool Ended() const { return is_right_ && next_ == attrs_.size; }

 private:
  static bool Read(XLA_FFI_AttrType type, const void* attribute, int64_t& value) {
    if (type != XLA_FFI_AttrType_SCALAR) return false;
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attribute);
    if (scalar->dtype != XLA_FFI_DataType_S64) return false;
    value = *static_cast<const int64_t*>(scalar->value);
    return true;
  }

  static bool Read(XLA_FFI_AttrType type, const void* attribute, Pairs& value) {
    if (type != XLA_FFI_AttrType_ARRAY) return false;
    const auto* array = static_cast<const XLA_FFI_Array*>(attribute);
    if (array->dtype != XLA_FFI_DataType_S64) return false;
    value = Pairs(static_cast<const int64_t*>(array->data), array->size);
    return true;
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

inline void Read(AttributeReader& reader, Attributes& attributes) {
  reader.Take("callback", attributes.callback)
      .Take("dynamic_operands", attributes.dynamic_operands)
      .Take("dynamic_results", attributes.dynamic_results)
      .Take("sub_byte_operands", attributes.sub_byte_operands)
      .Take("sub_byte_results", attributes.sub_byte_results);
}

// The `AttrDecoding` of a struct that has a `Read` function.
template <typename T>
struct StructDecoding {
  using Type = T;
  static std::optional<T> Decode(XLA_FFI_AttrType, void* attrs,
                                 xla::ffi::DiagnosticEngine& diagnostic) {
    AttributeReader reader(*static_cast<const XLA_FFI_Attrs*>(attrs));
    T attributes;
    Read(reader, attributes);
    if (reader.Ended()) return attributes;
    diagnostic.Emit("hostcall: not the attributes of this custom call.");
    return std::nullopt;
  }
};

}  // namespace hostcall

template <>
struct xla::ffi::AttrDecoding<hostcall::Attributes>
    : hostcall::StructDecoding<hostcall::Attributes> {};
