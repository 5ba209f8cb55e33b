// The failure for a callback that is gone.
#pragma once

#include <cstdint>
#include <string>

#include "failure.h"
#include "host_api.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// Builds the error. Frames name no framework: without TensorFlow in the process, it is JAX.
inline Failure Gone(const char* kind, int64_t id) {
  const bool has_tensorflow = Host().tensors.make != nullptr;
  return Failure(
      xla::ffi::ErrorCode::kFailedPrecondition,
      std::string("The ") + kind + " function of the host callback with the id " +
          std::to_string(id) + " is gone: what this program was compiled from, " +
          (has_tensorflow ? "a graph of TensorFlow's or a jitted function of JAX's, "
                          : "a jitted function, ") +
          "has been deleted, or the program is another process's. Keep " +
          (has_tensorflow ? "the tf.function (or the model), or what jax.jit has returned, "
                          : "what jax.jit or lower(...).compile() has returned ") +
          "for as long as its program runs; from one process to another, programs go by "
          "hostcall.export.");
}

}  // namespace hostcall
