// Native code that programs call, and its two kinds: C functions, and handlers of XLA's typed FFI.
// No Python here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frame.h"
#include "stats.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// The arguments of native code: parts of XLA's call frame, which lives as long as the call.
struct NativeFrame {
  // Throws Failure if something is not a buffer.
  explicit NativeFrame(XLA_FFI_CallFrame& frame)
      : whole(frame),
        operands(RawBuffers(frame.args).WithoutToken()),
        results(RawBuffers(frame.rets).WithoutToken()) {}

  XLA_FFI_CallFrame& whole;  // may be changed: a handler of XLA's FFI gets it as its own
  const RawBuffers operands;
  const RawBuffers results;
};

// The outcome of a call: an error, a future, or neither if all is done. A struct of two pointers
// goes from function to function in registers, a variant through memory.
struct NativeOutcome {
  XLA_FFI_Error* error = nullptr;
  XLA_FFI_Future* future = nullptr;
};

inline XLA_FFI_Error* Encode(XLA_FFI_CallFrame& frame, const NativeOutcome& outcome) {
  if (outcome.future != nullptr) frame.future = outcome.future;
  return outcome.error;
}

// A piece of native code (native_code.h). An owner holds the memory of the code; if the owner is
// dropped while a call runs, the call keeps it.
class NativeFunction {
 public:
  explicit NativeFunction(std::string label) : label_(std::move(label)) {}
  virtual ~NativeFunction() = default;
  NativeFunction(const NativeFunction&) = delete;
  NativeFunction& operator=(const NativeFunction&) = delete;

  // Calls the code. Throws Failure.
  virtual NativeOutcome Call(const NativeFrame& frame) const = 0;

  // Returns the name in profiles and statistics.
  const std::string& label() const { return label_; }
  virtual Stats& stats() { return stats_; }

  // Sets the owner, which the last holder of the function drops.
  virtual void SetOwner(std::shared_ptr<void> owner) { owner_ = std::move(owner); }

 private:
  const std::string label_;
  Stats stats_;
  std::shared_ptr<void> owner_;
};

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
