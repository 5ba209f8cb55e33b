// Places and limits of workers, as the environment sets them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hostcall::serving {

struct Settings {
  std::vector<std::string> sockets;  // of workers that run already
  std::string python;                // starts workers instead
  size_t workers = 1;                // number to start
  size_t calls = 0;                  // limit of concurrent calls
  size_t queue = 256;                // limit of calls that wait for others
  double timeout = 300;              // of a call, in seconds
  double start_timeout = 120;        // of a worker's start, in seconds
  uint64_t bytes = uint64_t{4} << 30;

  bool is_set() const { return !sockets.empty() || !python.empty(); }
};

// Reads the variables HOSTCALL_WORKER...; throws a Failure that names an invalid one.
Settings ReadSettings(const std::function<const char*(const char*)>& variable);

}  // namespace hostcall::serving
