// XLA's call frame as native code gets it: binding `Surroundings` and all buffers.
#pragma once

#include <optional>
#include <variant>

#include "native_function.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

struct Surroundings {
  const XLA_FFI_Api* api;
  XLA_FFI_ExecutionContext* context;
};

}  // namespace hostcall

// The decoding that passes on the API and the context, which the FFI's binding otherwise wraps.
template <>
struct xla::ffi::CtxDecoding<hostcall::Surroundings> {
  using Type = hostcall::Surroundings;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine&) {
    return Type{api, context};
  }
};

template <xla::ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, hostcall::NativeOutcome> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(const XLA_FFI_Api*,
                                                              XLA_FFI_ExecutionContext*,
                                                              hostcall::NativeOutcome outcome) {
    if (outcome.future != nullptr) return outcome.future;
    return outcome.error;
  }
};

namespace hostcall {

inline NativeFrame MakeFrame(const Surroundings& around, const xla::ffi::RemainingArgs& args,
                             const xla::ffi::RemainingRets& rets) {
  return NativeFrame(around.api, around.context, RawArgs::Of(args), RawRets::Of(rets));
}

}  // namespace hostcall
