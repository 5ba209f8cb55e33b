// Native code, as whoever calls it knows it: no Python here.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "recycled.h"
#include "stats.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// What native code is called with, which lives as long as the call.
struct NativeFrame {
  const XLA_FFI_Api* api = nullptr;
  XLA_FFI_ExecutionContext* context = nullptr;
  RecycledVector<XLA_FFI_Buffer*> operands;  // without the token
  RecycledVector<XLA_FFI_Buffer*> results;
};

// What a call comes to: an error, which is null where there is none, or a future.
using NativeOutcome = std::variant<XLA_FFI_Error*, XLA_FFI_Future*>;

// A piece of native code (native_code.h). Somebody owns what the code lies in; where that is
// dropped while a call runs, the call keeps it.
class NativeFunction {
 public:
  explicit NativeFunction(std::string label) : label_(std::move(label)) {}
  virtual ~NativeFunction() = default;
  NativeFunction(const NativeFunction&) = delete;
  NativeFunction& operator=(const NativeFunction&) = delete;

  // Throws Failure.
  virtual NativeOutcome Call(const NativeFrame& frame) const = 0;

  // What profiles and statistics call it.
  const std::string& label() const { return label_; }
  virtual Stats& stats() { return stats_; }

  // The last one that has the function drops the owner.
  virtual void SetOwner(std::shared_ptr<void> owner) { owner_ = std::move(owner); }

 private:
  const std::string label_;
  Stats stats_;
  std::shared_ptr<void> owner_;
};

}  // namespace hostcall
