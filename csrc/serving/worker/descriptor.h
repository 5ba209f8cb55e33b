// An owned file descriptor, and deadlines.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <utility>

namespace hostcall::serving {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Returns the moment that is `seconds` from now: less than a thousand years.
inline Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

// Returns the longest time that poll() may wait until `end`.
inline int PollMilliseconds(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

}  // namespace hostcall::serving
