// The cost of calls: counted on request, and shown to a framework's profiler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "host_api.h"

namespace hostcall {

// The counts of one callback. Times are in nanoseconds.
struct Stats {
  using Part = std::atomic<int64_t>;

  Part calls{0};
  Part errors{0};
  Part waiting{0};   // for the GIL
  Part function{0};  // in the user's function
  Part copying{0};   // operands and results, with their checks
  Part bytes{0};     // of operands and results
};

inline std::atomic<bool> stats_are_collected{false};

// Returns whether calls are counted: then they cost some reads of a clock more. Off at first.
inline bool CollectsStats() { return stats_are_collected.load(std::memory_order_relaxed); }
inline void CollectStats(bool on) { stats_are_collected = on; }

// A call in the profile and, where calls are counted, in the counts.
class Measured {
 public:
  // `stats` may be null.
  Measured(const std::string& label, Stats* stats)
      : profiler_(Host().profiler), stats_(CollectsStats() ? stats : nullptr) {
    if (profiler_.level != nullptr && profiler_.level->load(std::memory_order_acquire) >= 1) {
      begun_ = profiler_.begin(label);
    }
    if (stats_ == nullptr) return;
    ++stats_->calls;
    last_ = Clock::now();
  }
  ~Measured() {
    if (begun_ != 0) profiler_.end(begun_);
  }
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  bool counts() const { return stats_ != nullptr; }

  // Adds the time since the last lap to a part.
  void Lap(Stats::Part Stats::* part) {
    if (stats_ == nullptr) return;
    const Clock::time_point now = Clock::now();
    stats_->*part += std::chrono::nanoseconds(now - last_).count();
    last_ = now;
  }

  void Add(Stats::Part Stats::* part, int64_t count) {
    if (stats_ != nullptr) stats_->*part += count;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const ProfilerApi& profiler_;
  int64_t begun_ = 0;
  Stats* const stats_;
  Clock::time_point last_;
};

}  // namespace hostcall
