// Failures of a host call inside the runtime: a status code of the FFI and a message for the user.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace hostcall {

// An exception inside the runtime; `RunHostCall` turns it into a value before it reaches XLA.
class Failure : public std::exception {
 public:
  Failure(xla::ffi::ErrorCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  static Failure InvalidArgument(std::string message) {
    return Failure(xla::ffi::ErrorCode::kInvalidArgument, std::move(message));
  }

  // Returns the failure for a frame that no lowering of ours makes.
  static Failure Malformed() { return InvalidArgument("hostcall: malformed custom call."); }

  // Returns the same failure, with the description of the callback that it happened in.
  Failure In(const std::string& description) const {
    return Failure(code_, message_ + " This is " + description + "." + remedy_);
  }

  // Returns the same failure; `remedy`, the lines to write, follows that description.
  Failure With(std::string remedy) const {
    Failure failure = *this;
    failure.remedy_ = std::move(remedy);
    return failure;
  }

  xla::ffi::ErrorCode code() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }
  xla::ffi::Error ToError() const { return xla::ffi::Error(code_, message_); }

 private:
  xla::ffi::ErrorCode code_;
  std::string message_;
  std::string remedy_;
};

// Returns a true size of an operand of `op` that XLA has computed, or throws Failure if there is no
// memory for it: XLA computes some bounded sizes wrong.
inline int32_t CheckedSize(int32_t size, int64_t bound, std::string_view op) {
  if (size >= 0 && size <= bound) return size;
  throw Failure(xla::ffi::ErrorCode::kInternal,
                "hostcall: an operand of " + std::string(op) + " has size " + std::to_string(size) +
                    " in a dimension that is bounded by " + std::to_string(bound) +
                    ". XLA computed it wrongly: some of its ops do so for results of bounded "
                    "size. Move the op out of the compiled function, or pad by hand.");
}

}  // namespace hostcall
