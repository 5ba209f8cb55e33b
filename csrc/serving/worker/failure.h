// How a call of a worker fails inside the client; `CallWorker` turns it into an Outcome.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "worker_client.h"

namespace hostcall::serving {

// Those of absl::StatusCode.
enum Code : int {
  kUnknown = 2,
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

// The other side has closed the connection, or it is broken.
class Closed : public Failure {
 public:
  Closed() : Failure(kUnavailable, "the connection was closed") {}
};

// The other side has sent what the protocol does not have.
class BadFrame : public Failure {
 public:
  explicit BadFrame(const std::string& problem) : Failure(kInternal, problem) {}
};

}  // namespace hostcall::serving
