// The two kinds of native code: C functions, and handlers of XLA's typed FFI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "native_function.h"

namespace hostcall {

// The maximum number of arguments of a C function.
constexpr size_t kMaxNativeArguments = 32;

// A C function: a pointer for each operand and each result, then perhaps an int64 for each
// dimension of each operand. Empty buffers are null. Returns nothing, or an int32 that is 0 for
// success.
class CFunction : public NativeFunction {
 public:
  // Throws std::invalid_argument for more arguments than it can have.
  CFunction(std::string label, void* address, size_t arguments, bool takes_sizes,
            bool returns_status);

  NativeOutcome Call(const NativeFrame& frame) const override;

 private:
  void* const address_;
  const size_t arguments_;
  const bool takes_sizes_;
  const bool returns_status_;
};

// An attribute of a handler: a scalar, of `dtype` and given by its bytes, or a text if `dtype` is
// 0.
struct NativeAttribute {
  std::string name;
  int dtype;
  std::string bytes;
};

// A handler of XLA's typed FFI, for the stage of execution. It is called with the buffers and the
// context of the program, and the attributes given here.
class FfiHandler : public NativeFunction {
 public:
  // Throws std::invalid_argument for scalars of more than 16 bytes.
  FfiHandler(std::string label, void* address, std::vector<NativeAttribute> attributes);

  NativeOutcome Call(const NativeFrame& frame) const override;

 private:
  struct Attribute {
    std::string name;
    std::string text;
    std::array<int64_t, 2> value;
    XLA_FFI_ByteSpan name_span;
    XLA_FFI_ByteSpan text_span;
    XLA_FFI_Scalar scalar;
  };

  XLA_FFI_Handler* const address_;
  // These point into each other, and never change.
  std::vector<Attribute> attributes_;
  mutable std::vector<XLA_FFI_AttrType> types_;
  mutable std::vector<XLA_FFI_ByteSpan*> names_;
  mutable std::vector<void*> values_;
};

}  // namespace hostcall
