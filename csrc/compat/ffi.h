// Handlers for XLA of any age. They are compiled with version 0.2 of its FFI (third_party/xla); the
// differences of older versions stand here, and nowhere else.
#pragma once

#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace hostcall::compat {

// Returns the calling XLA's version. Version 0.1 passes no functions when it asks for metadata.
inline int32_t MinorVersion(const XLA_FFI_CallFrame& frame) {
  return frame.api == nullptr ? 1 : frame.api->api_version.minor_version;
}

inline bool AsksForMetadata(const XLA_FFI_CallFrame& frame) {
  return frame.extension_start != nullptr &&
         frame.extension_start->type == XLA_FFI_Extension_Metadata;
}

// Returns whether a handler is to run, in the one stage that it has.
inline bool IsCall(const XLA_FFI_CallFrame& frame) {
  return frame.stage == XLA_FFI_ExecutionStage_EXECUTE && !AsksForMetadata(frame);
}

// Answers XLA's question for a handler's metadata. Version 0.1 takes its own number alone, and has
// no room for the type of a state.
inline XLA_FFI_Error* Describe(XLA_FFI_Handler* handler, XLA_FFI_CallFrame* frame) {
  auto* asked = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
  XLA_FFI_Metadata answer{};
  answer.struct_size = sizeof(answer);
  XLA_FFI_Metadata_Extension extension = *asked;
  extension.metadata = &answer;
  XLA_FFI_CallFrame roomy = *frame;
  roomy.extension_start = &extension.extension_base;
  if (XLA_FFI_Error* error = handler(&roomy)) return error;
  asked->metadata->api_version = answer.api_version;
  asked->metadata->api_version.minor_version = MinorVersion(*frame);
  asked->metadata->traits = answer.traits;
  return nullptr;
}

inline xla::ffi::Error Nothing() { return xla::ffi::Error::Success(); }

// Answers a frame that is not a call as the FFI's own handlers do: with metadata, or the error of
// another stage.
inline XLA_FFI_Error* AnswerQuestion(XLA_FFI_CallFrame* frame) {
  XLA_FFI_DEFINE_HANDLER(handler, Nothing, xla::ffi::Ffi::Bind());
  const bool is_older = AsksForMetadata(*frame) && MinorVersion(*frame) < XLA_FFI_API_MINOR;
  return is_older ? Describe(handler, frame) : handler(frame);
}

}  // namespace hostcall::compat
