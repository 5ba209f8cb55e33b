// Handlers for XLA of any age. They are compiled with version 0.2 of its FFI (third_party/xla);
// what older versions do otherwise stands here, and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "xla/ffi/api/ffi.h"

namespace hostcall::compat {

// Whether the functions for futures follow at once where our headers have one that counts threads,
// as in TensorFlow 2.18. The tables of 2.18 and 2.19 do not say how long they are. But a function
// that gets arguments of no size complains, and tells its name.
inline bool LacksThreadCount(const XLA_FFI_Api* api) {
  XLA_FFI_ThreadPool_NumThreads_Args nothing{};
  XLA_FFI_Error* error = api->XLA_FFI_ThreadPool_NumThreads(&nothing);
  if (error == nullptr) return false;
  XLA_FFI_Error_GetMessage_Args message{XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE, nullptr, error,
                                        nullptr};
  api->XLA_FFI_Error_GetMessage(&message);
  const bool lacks = std::strstr(message.message, "XLA_FFI_Future_Create") != nullptr;
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  api->XLA_FFI_Error_Destroy(&destroy);
  return lacks;
}

// The functions of an older XLA where our headers look for them. One table is kept for the process:
// only TensorFlow's XLA can be so old.
inline const XLA_FFI_Api* Current(const XLA_FFI_Api* api) {
  if (api->struct_size > offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads)) return api;
  static const XLA_FFI_Api* const old = LacksThreadCount(api) ? api : nullptr;
  if (api != old) return api;
  static const XLA_FFI_Api moved = [] {
    constexpr size_t kUntilFutures = offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
    XLA_FFI_Api copy{};
    std::memcpy(&copy, old, kUntilFutures);
    std::memcpy(&copy.XLA_FFI_Future_Create, reinterpret_cast<const char*>(old) + kUntilFutures,
                3 * sizeof(void*));
    return copy;
  }();
  return &moved;
}

// Of the XLA that calls. Version 0.1 passes no functions with its question for what a handler is.
inline int32_t MinorVersion(const XLA_FFI_CallFrame& frame) {
  return frame.api == nullptr ? 1 : frame.api->api_version.minor_version;
}

// Answers that question. Version 0.1 takes its own number alone, and has no room for the type of a
// state.
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

inline XLA_FFI_Error* CallHandler(XLA_FFI_Handler* handler, XLA_FFI_CallFrame* frame) {
  if (MinorVersion(*frame) >= XLA_FFI_API_MINOR) return handler(frame);
  if (frame->extension_start != nullptr &&
      frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    return Describe(handler, frame);
  }
  frame->api = Current(frame->api);
  return handler(frame);
}

}  // namespace hostcall::compat

// As XLA_FFI_DEFINE_HANDLER_SYMBOL.
#define HOSTCALL_DEFINE_HANDLER(fn, impl, ...)              \
  extern "C" XLA_FFI_Error* fn(XLA_FFI_CallFrame* frame) {  \
    XLA_FFI_DEFINE_HANDLER(handler, impl, __VA_ARGS__);     \
    return ::hostcall::compat::CallHandler(handler, frame); \
  }                                                         \
  static_assert(std::is_same_v<decltype(&fn), XLA_FFI_Handler*>)
