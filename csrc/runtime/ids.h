// The ids by which compiled programs know what they call.
#pragma once

#include <cstdint>
#include <random>

namespace hostcall {

// Where the callback ids of a process begin. At random, so that a program of another process (out
// of a saved model, say) finds nothing under its ids, rather than something else. Positive, with
// room for more ids than a process can use.
inline int64_t FirstId() {
  std::random_device random;
  return (static_cast<int64_t>(random() & 0x3fffffff) << 32) + 1;
}

}  // namespace hostcall
