// XLA's call frame: its buffers and attributes, read in place, and the answer to it.
//
// The FFI's own binding costs a call more than a small function takes, so it only answers questions
// for metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "compat/ffi.h"
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

  // Throw Failure if something is not a buffer.
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

// The outcome of a call: a future if it goes on elsewhere, otherwise an error, if any.
struct Result {
  std::optional<xla::ffi::Future> later;
  std::optional<xla::ffi::Error> error;
};

// Answers with a future only if needed: an immediate answer costs less.
inline XLA_FFI_Error* Encode(XLA_FFI_CallFrame& frame, Result result) {
  namespace ffi = xla::ffi;
  if (result.later.has_value()) {
    using Encoding = ffi::ResultEncoding<ffi::ExecutionStage::kExecute, ffi::Future>;
    const auto answer = Encoding::Encode(frame.api, frame.ctx, *std::move(result.later));
    if (const auto* error = std::get_if<XLA_FFI_Error*>(&answer)) return *error;
    frame.future = std::get<XLA_FFI_Future*>(answer);
    return nullptr;
  }
  return result.error.has_value() ? ffi::internal::CreateError(frame.api, *result.error) : nullptr;
}

// Lets `call` answer a frame. Exceptions become errors: none may reach XLA.
template <typename Call>
XLA_FFI_Error* Answer(XLA_FFI_CallFrame* frame, Call&& call) {
  if (!compat::IsCall(*frame)) return compat::AnswerQuestion(frame);
  try {
    return Encode(*frame, call(*frame));
  } catch (const Failure& failure) {
    return xla::ffi::internal::CreateError(frame->api, failure.ToError());
  } catch (const std::exception& error) {
    const xla::ffi::Error internal(xla::ffi::ErrorCode::kInternal, error.what());
    return xla::ffi::internal::CreateError(frame->api, internal);
  }
}

}  // namespace hostcall
