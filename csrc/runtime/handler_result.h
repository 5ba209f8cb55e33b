// The body of a handler: from XLA's call frame to an answer.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "compat/ffi.h"
#include "failure.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

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

// Has `call` answer a frame. Exceptions become errors: none may reach XLA. The FFI's own binding
// costs a call more than a small function takes, so it answers other questions alone.
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
