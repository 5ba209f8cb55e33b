// A call frame of XLA's as native code gets it: binding `Surroundings` and all buffers.
#pragma once

#include <optional>
#include <vector>

#include "native_function.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

struct Surroundings {
  const XLA_FFI_Api* api;
  XLA_FFI_ExecutionContext* context;
};

// A buffer as it lies in the frame.
struct RawBuffer {
  XLA_FFI_Buffer* buffer;
};

}  // namespace hostcall

// How the FFI's binding hands out what it otherwise wraps.
template <>
struct xla::ffi::CtxDecoding<hostcall::Surroundings> {
  using Type = hostcall::Surroundings;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine&) {
    return Type{api, context};
  }
};

template <>
struct xla::ffi::ArgDecoding<hostcall::RawBuffer> {
  static std::optional<hostcall::RawBuffer> Decode(XLA_FFI_ArgType type, void* arg,
                                                   DiagnosticEngine& diagnostic) {
    if (type != XLA_FFI_ArgType_BUFFER) return diagnostic.Emit("hostcall wants buffers.");
    return hostcall::RawBuffer{static_cast<XLA_FFI_Buffer*>(arg)};
  }
};

template <>
struct xla::ffi::RetDecoding<hostcall::RawBuffer> {
  static std::optional<xla::ffi::Result<hostcall::RawBuffer>> Decode(XLA_FFI_RetType type,
                                                                     void* ret,
                                                                     DiagnosticEngine& diagnostic) {
    if (type != XLA_FFI_RetType_BUFFER) return diagnostic.Emit("hostcall wants buffers.");
    return xla::ffi::Result<hostcall::RawBuffer>(
        hostcall::RawBuffer{static_cast<XLA_FFI_Buffer*>(ret)});
  }
};

template <xla::ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, hostcall::NativeOutcome> {
  static hostcall::NativeOutcome Encode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                        hostcall::NativeOutcome outcome) {
    return outcome;
  }
};

namespace hostcall {

inline void AddBuffer(std::vector<XLA_FFI_Buffer*>& buffers, RawBuffer raw) {
  if (raw.buffer->dtype != XLA_FFI_DataType_TOKEN) buffers.push_back(raw.buffer);
}

inline NativeFrame MakeFrame(const Surroundings& around, const xla::ffi::RemainingArgs& args,
                             const xla::ffi::RemainingRets& rets) {
  NativeFrame frame{around.api, around.context, {}, {}};
  frame.operands.reserve(args.size());
  frame.results.reserve(rets.size());
  for (size_t i = 0; i < args.size(); ++i) {
    AddBuffer(frame.operands, args.get<RawBuffer>(i).value());
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    AddBuffer(frame.results, *rets.get<RawBuffer>(i).value());
  }
  return frame;
}

}  // namespace hostcall
