// Where workers are and what is asked of them, as the environment says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hostcall::serving {

struct Settings {
  std::vector<std::string> sockets;  // of workers that somebody else has started
  std::string python;                // or what starts them
  size_t workers = 1;                // as many
  size_t calls = 0;                  // at a time
  size_t queue = 256;                // of calls that wait for others
  double timeout = 300;              // of a call, in seconds
  double start_timeout = 120;        // of the start of a worker
  uint64_t bytes = uint64_t{4} << 30;

  bool is_set() const { return !sockets.empty() || !python.empty(); }
};

// Reads the variables HOSTCALL_WORKER...; throws a Failure that names one that makes no sense.
Settings ReadSettings(const std::function<const char*(const char*)>& variable);

}  // namespace hostcall::serving
