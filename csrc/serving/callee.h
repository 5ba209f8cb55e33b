// Functions that the script ops of a saved graph call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/native_code.h"
#include "token.h"
#include "worker/worker_client.h"

namespace tensorflow {
class OpKernelContext;
}

namespace hostcall::serving {

// A function: native code, or if `native` is null, a Python function that workers call.
struct Callee {
  std::string text;  // the token
  Token token;
  std::shared_ptr<const NativeFunction> native;

  // Returns the shapes of the results of native code.
  absl::StatusOr<Shapes> NativeShapes(const Shapes& inputs) const;
};

// Returns a token's callee. It lives as long as the process, as libraries do, so a program may call
// it at any time. Errors are not kept: the next call tries again.
absl::StatusOr<const Callee*> FindCallee(const std::string& token);

// Calls native code with the inputs of a kernel, and sets its outputs.
absl::Status CallNative(const Callee& callee, tensorflow::OpKernelContext* ctx);

// Replaces UNAVAILABLE, which TensorFlow takes for its own network's error and rewrites.
inline absl::StatusCode CodeOf(const Outcome& outcome) {
  const auto code = static_cast<absl::StatusCode>(outcome.code);
  return code == absl::StatusCode::kUnavailable ? absl::StatusCode::kAborted : code;
}

inline absl::Status StatusOf(const Outcome& outcome) {
  return absl::Status(CodeOf(outcome), outcome.message);
}

}  // namespace hostcall::serving
