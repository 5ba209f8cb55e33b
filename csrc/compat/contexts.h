// XLA's side of a handler of its FFI: the context of a call, and the answers.
#pragma once

#if __has_include("xla/ffi/ffi_structs.h")
#include "xla/ffi/ffi_structs.h"
#else
// TensorFlow 2.20 and older define these in ffi_api.cc alone. The sizes of all members count.
#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "xla/executable_run_options.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/concurrency/async_value_ref.h"
#include "xla/tsl/concurrency/chain.h"

namespace Eigen {
struct ThreadPoolDevice;
}

struct XLA_FFI_Error {
  absl::Status status;
};

struct XLA_FFI_Future {
  tsl::AsyncValueRef<tsl::Chain> async_value;
};

struct XLA_FFI_ExecutionContext {
  struct CpuContext {
    const Eigen::ThreadPoolDevice* intra_op_thread_pool = nullptr;
  };
  struct GpuContext {
    void* stream = nullptr;
    void* allocator = nullptr;
  };
  using BackendContext = std::variant<std::monostate, CpuContext, GpuContext>;

  xla::RunId run_id = {};
  int32_t device_ordinal = -1;
  BackendContext backend_context = {};
  const void* called_computation = nullptr;
  const void* execution_context = nullptr;
  void* execution_state = nullptr;
};
#endif

namespace hostcall::compat {

// The name of XLA_FFI_ExecutionContext in the FFI's functions for C. TensorFlow 2.22 has another.
#if __has_include("xla/ffi/invoke.h")
using HandlerContext = XLA_FFI_InvokeContext;
#else
using HandlerContext = XLA_FFI_ExecutionContext;
#endif

inline HandlerContext* ContextOf(XLA_FFI_ExecutionContext* context) {
  return reinterpret_cast<HandlerContext*>(context);
}

inline XLA_FFI_ExecutionContext* ForHandlers(HandlerContext* context) {
  return reinterpret_cast<XLA_FFI_ExecutionContext*>(context);
}

}  // namespace hostcall::compat
