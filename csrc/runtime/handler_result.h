// What a handler answers XLA.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "failure.h"
#include "pool.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// What a call comes to: a future where it goes on elsewhere, else an error, if there is one.
struct Result {
  std::optional<xla::ffi::Future> later;
  std::optional<xla::ffi::Error> error;
};

// Ends what XLA has a future of.
inline void Complete(xla::ffi::Promise& promise, std::optional<xla::ffi::Error> error) {
  const GoingOn going_on;
  if (error.has_value()) {
    promise.SetError(*std::move(error));
  } else {
    promise.SetAvailable();
  }
}

// No exception reaches XLA.
template <typename Answer>
Result Answered(Answer&& answer) {
  try {
    return answer();
  } catch (const Failure& failure) {
    return {std::nullopt, failure.ToError()};
  } catch (const std::exception& error) {
    return {std::nullopt, xla::ffi::Error(xla::ffi::ErrorCode::kInternal, error.what())};
  }
}

}  // namespace hostcall

// XLA takes an answer at once, which costs less, as well as a future.
template <xla::ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, hostcall::Result> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(const XLA_FFI_Api* api,
                                                              XLA_FFI_ExecutionContext* ctx,
                                                              hostcall::Result result) {
    if (result.later.has_value()) {
      return ResultEncoding<stage, Future>::Encode(api, ctx, *std::move(result.later));
    }
    if (!result.error.has_value()) return static_cast<XLA_FFI_Error*>(nullptr);
    return ResultEncoding<stage, Error>::Encode(api, ctx, *std::move(result.error));
  }
};
