// Native code as its callers see it: no Python here.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "frame.h"
#include "stats.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// The arguments of native code: parts of XLA's call frame, which lives as long as the call.
struct NativeFrame {
  // Throws Failure if something is no buffer.
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

}  // namespace hostcall
