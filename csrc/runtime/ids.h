// The ids by which compiled programs know their callbacks.
#pragma once

#include <cstdint>
#include <random>
#include <unordered_set>

namespace hostcall {

// Returns the first callback id of a process. It is random, so that a program of another process
// (from a saved model, say) finds nothing under its ids, rather than something else. It is
// positive, with room for more ids than a process can use.
inline int64_t FirstId() {
  std::random_device random;
  return (static_cast<int64_t>(random() & 0x3fffffff) << 32) + 1;
}

// The ids of a table, each given once.
class Ids {
 public:
  // Returns `wanted` unless it is 0: an id that another process with the same function has, too. If
  // it was given already, returns the next one of a series that is the same in each process.
  int64_t Next(int64_t wanted) {
    if (wanted == 0) return next_++;
    while (!given_.insert(wanted).second) wanted = After(wanted);
    return wanted;
  }

 private:
  static constexpr int64_t kMask = INT64_MAX >> 1;

  static int64_t After(int64_t id) {
    return static_cast<int64_t>(static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u + 1) & kMask;
  }

  int64_t next_ = FirstId();
  std::unordered_set<int64_t> given_;
};

}  // namespace hostcall
