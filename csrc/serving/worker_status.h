// What has become of a call of a worker, as a status of TensorFlow's.
#pragma once

#include "absl/status/status.h"
#include "worker/worker_client.h"

namespace hostcall::serving {

// TensorFlow makes another error of UNAVAILABLE, which it takes for one of its own network.
inline absl::StatusCode CodeOf(const Outcome& outcome) {
  const auto code = static_cast<absl::StatusCode>(outcome.code);
  return code == absl::StatusCode::kUnavailable ? absl::StatusCode::kAborted : code;
}

inline absl::Status StatusOf(const Outcome& outcome) {
  return absl::Status(CodeOf(outcome), outcome.message);
}

}  // namespace hostcall::serving
