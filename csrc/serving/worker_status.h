// Outcome of a worker's call as a status of TensorFlow.
#pragma once

#include "absl/status/status.h"
#include "worker/worker_client.h"

namespace hostcall::serving {

// Replaces UNAVAILABLE, which TensorFlow takes for its own network's error and rewrites.
inline absl::StatusCode CodeOf(const Outcome& outcome) {
  const auto code = static_cast<absl::StatusCode>(outcome.code);
  return code == absl::StatusCode::kUnavailable ? absl::StatusCode::kAborted : code;
}

inline absl::Status StatusOf(const Outcome& outcome) {
  return absl::Status(CodeOf(outcome), outcome.message);
}

}  // namespace hostcall::serving
