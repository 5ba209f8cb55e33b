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

// A timer for the parts of a call; given null it measures nothing.
class Stopwatch {
 public:
  explicit Stopwatch(Stats* stats) : stats_(stats) {
    if (stats_ != nullptr) last_ = Clock::now();
  }

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

  bool measures() const { return stats_ != nullptr; }

 private:
  using Clock = std::chrono::steady_clock;

  Stats* const stats_;
  Clock::time_point last_;
};

// A call in the profile, for as long as this lives.
class Profiled {
 public:
  explicit Profiled(const std::string& name) : api_(Host().profiler) {
    if (api_.level != nullptr && api_.level->load(std::memory_order_acquire) >= 1) {
      begun_ = api_.begin(name);
    }
  }
  ~Profiled() {
    if (begun_ != 0) api_.end(begun_);
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;

 private:
  const ProfilerApi& api_;
  int64_t begun_ = 0;
};

}  // namespace hostcall
