#include "native_code.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "failure.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Pointers and int64s are passed alike, so the number of arguments alone determines the call.
static_assert(sizeof(void*) == sizeof(int64_t));

using NativeArguments = std::array<int64_t, kMaxNativeArguments>;

template <size_t... I>
int32_t CallWith(void* function, const NativeArguments& arguments, std::index_sequence<I...>) {
  using Function = int32_t (*)(decltype(arguments[I] + 0)...);
  return reinterpret_cast<Function>(function)(arguments[I]...);
}

template <size_t count>
int32_t CallWithCount(void* function, const NativeArguments& arguments) {
  return CallWith(function, arguments, std::make_index_sequence<count>());
}

template <size_t... counts>
constexpr auto MakeCalls(std::index_sequence<counts...>) {
  return std::array{&CallWithCount<counts>...};
}

// The callers by the number of arguments.
constexpr auto kCalls = MakeCalls(std::make_index_sequence<kMaxNativeArguments + 1>());

// Returns null for an array without elements, wherever XLA has it.
int64_t AddressOf(const XLA_FFI_Buffer& buffer) {
  for (int64_t i = 0; i < buffer.rank; ++i) {
    if (buffer.dims[i] == 0) return 0;
  }
  return reinterpret_cast<intptr_t>(buffer.data);
}

Failure WrongCount(const std::string& label, size_t wanted, size_t given) {
  return Failure::InvalidArgument("hostcall: a native function of " + std::to_string(wanted) +
                                  (wanted == 1 ? " argument" : " arguments") +
                                  " was to be called with " + std::to_string(given) + ". This is " +
                                  label + ".");
}

Failure Failed(const std::string& label, int32_t status) {
  return Failure(ffi::ErrorCode::kUnknown,
                 "The native function returned status " + std::to_string(status) +
                     ", and not 0 for success. If it returns nothing, its declaration has to say "
                     "so: `restype = None` in ctypes, `types.void(...)` in Numba. This is " +
                     label + ".");
}

XLA_FFI_ByteSpan SpanOf(const std::string& text) { return {text.data(), text.size()}; }

}  // namespace

CFunction::CFunction(std::string label, void* address, size_t arguments, bool takes_sizes,
                     bool returns_status)
    : NativeFunction(std::move(label)),
      address_(address),
      arguments_(arguments),
      takes_sizes_(takes_sizes),
      returns_status_(returns_status) {
  if (arguments > kMaxNativeArguments) throw std::invalid_argument("too many arguments");
}

NativeOutcome CFunction::Call(const NativeFrame& frame) const {
  size_t count = frame.operands.size() + frame.results.size();
  if (takes_sizes_) {
    for (const XLA_FFI_Buffer* operand : frame.operands) count += operand->rank;
  }
  if (count != arguments_) throw WrongCount(label(), arguments_, count);
  NativeArguments arguments;
  int64_t* next = arguments.data();
  for (const XLA_FFI_Buffer* operand : frame.operands) *next++ = AddressOf(*operand);
  for (const XLA_FFI_Buffer* result : frame.results) *next++ = AddressOf(*result);
  if (takes_sizes_) {
    for (const XLA_FFI_Buffer* operand : frame.operands) {
      for (int64_t i = 0; i < operand->rank; ++i) *next++ = operand->dims[i];
    }
  }
  const int32_t status = kCalls[arguments_](address_, arguments);
  if (returns_status_ && status != 0) throw Failed(label(), status);
  return {};
}

FfiHandler::FfiHandler(std::string label, void* address, std::vector<NativeAttribute> attributes)
    : NativeFunction(std::move(label)), address_(reinterpret_cast<XLA_FFI_Handler*>(address)) {
  // XLA sorts attributes in this order, and handlers look them up by it.
  std::sort(attributes.begin(), attributes.end(),
            [](const auto& one, const auto& other) { return one.name < other.name; });
  attributes_.reserve(attributes.size());
  for (NativeAttribute& given : attributes) {
    Attribute& made = attributes_.emplace_back();
    const bool is_text = given.dtype == 0;
    if (!is_text && given.bytes.size() > sizeof(made.value)) {
      throw std::invalid_argument("a scalar of a wrong size");
    }
    made.name = std::move(given.name);
    made.text = std::move(given.bytes);
    if (!is_text) std::memcpy(made.value.data(), made.text.data(), made.text.size());
    made.name_span = SpanOf(made.name);
    made.text_span = SpanOf(made.text);
    made.scalar = {static_cast<XLA_FFI_DataType>(given.dtype), made.value.data()};
    types_.push_back(is_text ? XLA_FFI_AttrType_STRING : XLA_FFI_AttrType_SCALAR);
    names_.push_back(&made.name_span);
    values_.push_back(is_text ? static_cast<void*>(&made.text_span) : &made.scalar);
  }
}

// Completes the frame that XLA makes for each call: a copy takes as long as a small handler does.
NativeOutcome FfiHandler::Call(const NativeFrame& frame) const {
  XLA_FFI_CallFrame& own = frame.whole;
  own.attrs.size = static_cast<int64_t>(attributes_.size());
  own.attrs.types = types_.data();
  own.attrs.names = names_.data();
  own.attrs.attrs = values_.data();
  own.args.size = static_cast<int64_t>(frame.operands.size());  // without the token
  own.rets.size = static_cast<int64_t>(frame.results.size());
  XLA_FFI_Error* error = address_(&own);
  return {error, error == nullptr ? own.future : nullptr};
}

}  // namespace hostcall
