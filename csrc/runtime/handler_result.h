// A handler's answer to XLA.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "failure.h"
#include "pool.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// The outcome of a call: a future if it goes on elsewhere, otherwise an error, if any.
struct Result {
  std::optional<xla::ffi::Future> later;
  std::optional<xla::ffi::Error> error;
};

// Completes a future of XLA's.
inline void Complete(xla::ffi::Promise& promise, std::optional<xla::ffi::Error> error) {
  const GoingOn going_on;
  if (error.has_value()) {
    promise.SetError(*std::move(error));
  } else {
    promise.SetAvailable();
  }
}

// Turns exceptions into errors: none may reach XLA.
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

// An encoding with a future only if needed: an immediate answer costs less.
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
