// Functions that the script ops of a saved graph call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/native_function.h"
#include "token.h"

namespace hostcall::serving {

using Shapes = std::vector<std::vector<int64_t>>;

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

}  // namespace hostcall::serving
