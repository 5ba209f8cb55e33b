// The errors that a compiled program raises for values, as TensorFlow's kernels would, and a fast
// look for such values.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "failure.h"
#include "frame.h"
#include "handler.h"

namespace ffi = xla::ffi;

namespace hostcall {

namespace {

// Separates the errors in the attribute, and in each of them its number, status code and message.
constexpr char kNext = '\x1e', kThen = ':';

// Takes a number and the separator behind it from a text.
int TakeNumber(std::string_view* text) {
  const size_t end = text->find(kThen);
  if (end == std::string_view::npos) throw Failure::Malformed();
  int number = 0;
  std::from_chars(text->data(), text->data() + end, number);
  text->remove_prefix(end + 1);
  return number;
}

// Returns the first of the errors in the attribute that is the wanted one, by its place from 0 on,
// and its number.
template <typename IsWanted>
Failure ErrorOf(const XLA_FFI_Attrs& attrs, IsWanted is_wanted) {
  std::string_view errors;
  AttributeReader(attrs).Take("errors", errors).End();
  for (int place = 0; !errors.empty(); ++place) {
    std::string_view error = errors.substr(0, errors.find(kNext));
    errors.remove_prefix(std::min(error.size() + 1, errors.size()));
    if (!is_wanted(place, TakeNumber(&error))) continue;
    const int code = TakeNumber(&error);
    return Failure(static_cast<ffi::ErrorCode>(code), std::string(error));
  }
  throw Failure::Malformed();
}

Result RaiseAny(const XLA_FFI_CallFrame& frame) {
  const RawBuffers failures = RawBuffers(frame.args).WithoutToken();
  if (failures.size() == 0) throw Failure::Malformed();
  int booleans = 0;
  for (const XLA_FFI_Buffer* failure : failures) {
    if (failure->dtype == XLA_FFI_DataType_PRED) {
      const int own = booleans++;
      if (!*static_cast<const bool*>(failure->data)) continue;
      throw ErrorOf(frame.attrs, [own](int place, int) { return place == own; });
    }
    if (failure->dtype != XLA_FFI_DataType_S32) throw Failure::Malformed();
    const int32_t wanted = *static_cast<const int32_t*>(failure->data);
    if (wanted == 0) continue;
    throw ErrorOf(frame.attrs, [wanted](int, int number) { return number == wanted; });
  }
  return {};
}

// Loops over blocks, which compilers turn into vector instructions, and stops at the first block
// with such a value.
template <typename T, typename Predicate>
__attribute__((always_inline)) inline bool AnyIn(const T* values, size_t size, Predicate is_one) {
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, size);
    T found = 0;
    for (size_t i = begin; i < end; ++i) found |= static_cast<T>(is_one(values[i]));
    if (found != 0) return true;
  }
  return false;
}

// The compiler makes versions for several generations of processors, of which the system's loader
// chooses one.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOSTCALL_VECTORIZED \
  __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#else
#define HOSTCALL_VECTORIZED
#endif

#define HOSTCALL_ANY(T)                                                                           \
  HOSTCALL_VECTORIZED bool AnyOutside(const T* values, size_t size, T limit) {                    \
    return AnyIn(values, size, [limit](T value) { return value >= limit; });                      \
  }                                                                                               \
  HOSTCALL_VECTORIZED bool AnyEqual(const T* values, size_t size, T limit) {                      \
    return AnyIn(values, size, [limit](T value) { return value == limit; });                      \
  }                                                                                               \
  HOSTCALL_VECTORIZED bool AnyAtLeast(const T* values, size_t size, T limit) {                    \
    using Signed = std::make_signed_t<T>;                                                         \
    const auto least = static_cast<Signed>(limit);                                                \
    return AnyIn(values, size, [least](T value) { return static_cast<Signed>(value) >= least; }); \
  }
HOSTCALL_ANY(uint32_t)
HOSTCALL_ANY(uint64_t)
#undef HOSTCALL_ANY

template <typename T>
bool AnyOf(const XLA_FFI_Buffer& values, const XLA_FFI_Buffer& limit, std::string_view kind) {
  const auto* data = static_cast<const T*>(values.data);
  const size_t size = BytesOf(values) / sizeof(T);
  const T bound = *static_cast<const T*>(limit.data);
  if (kind == "outside") return AnyOutside(data, size, bound);
  return kind == "equal" ? AnyEqual(data, size, bound) : AnyAtLeast(data, size, bound);
}

Result FindAny(const XLA_FFI_CallFrame& frame) {
  std::string_view kind;
  AttributeReader(frame.attrs).Take("kind", kind).End();
  const RawBuffers args(frame.args), results(frame.rets);
  if (args.size() != 2 || results.size() != 1) throw Failure::Malformed();
  const bool is_wide = args[0]->dtype == XLA_FFI_DataType_S64;
  *static_cast<bool*>(results[0]->data) = is_wide ? AnyOf<uint64_t>(*args[0], *args[1], kind)
                                                  : AnyOf<uint32_t>(*args[0], *args[1], kind);
  return {};
}

}  // namespace

}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallRaiseHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::RaiseAny);
}

extern "C" XLA_FFI_Error* HostcallAnyHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::FindAny);
}
