// Exceptions of a worker's call inside the client; `CallWorker` turns them into an Outcome.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "worker_client.h"

namespace hostcall::serving {

// Codes of absl::StatusCode.
enum Code : int {
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kInternal = 13,
  kUnavailable = 14,
  kLastCode = 16,
};

class Failure : public std::exception {
 public:
  Failure(int code, std::string message) : outcome_{code, std::move(message)} {}

  const Outcome& outcome() const { return outcome_; }
  const char* what() const noexcept override { return outcome_.message.c_str(); }

 private:
  Outcome outcome_;
};

// Failure of a connection that is broken, or that the other side has closed.
class Closed : public Failure {
 public:
  Closed() : Failure(kUnavailable, "the connection was closed") {}
};

// Failure of the other side to keep to the protocol.
class BadFrame : public Failure {
 public:
  explicit BadFrame(const std::string& problem) : Failure(kInternal, problem) {}
};

}  // namespace hostcall::serving
