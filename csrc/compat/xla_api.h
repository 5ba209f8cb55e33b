// TensorFlow's XLA as handlers see it.
#pragma once

#include <string_view>

#include "xla/ffi/api/c_api.h"

namespace xla::ffi {
// From xla/ffi/ffi_api.h, which needs MLIR's headers, and xla/ffi/ffi.h, whose names are another
// FFI's.
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace hostcall::compat {

// Registers the handlers of all stages as a custom call target. Returns XLA's error if it refuses,
// else null.
inline XLA_FFI_Error* Register(const XLA_FFI_Handler_Bundle& handlers, std::string_view target,
                               std::string_view platform = "Host") {
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {target.data(), target.size()};
  args.platform = {platform.data(), platform.size()};
  args.bundle = handlers;
  return xla::ffi::GetXlaFfiApi()->XLA_FFI_Handler_Register(&args);
}

// Registers likewise a handler for the stage of execution alone.
inline XLA_FFI_Error* Register(XLA_FFI_Handler* handler, std::string_view target,
                               std::string_view platform = "Host") {
  XLA_FFI_Handler_Bundle handlers{};
  handlers.execute = handler;
  return Register(handlers, target, platform);
}

}  // namespace hostcall::compat
