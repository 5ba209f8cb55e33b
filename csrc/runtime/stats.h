// The cost of calls: counted on request, and shown to a framework's profiler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

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

// The functions of a framework's profiler; `begin` returns the argument of `end`, or 0. It need not
// be told of calls while `level` is less than 1.
struct ProfilerApi {
  const std::atomic<int>* level;
  int64_t (*begin)(const std::string& name);
  void (*end)(int64_t begun);
};

inline std::atomic<const ProfilerApi*> profiler_api{nullptr};

// Sets the profiler; it lives as long as the process.
inline void SetProfilerApi(const ProfilerApi* api) { profiler_api = api; }

// A call in the profile, for as long as this lives.
class Profiled {
 public:
  explicit Profiled(const std::string& name) : api_(profiler_api.load(std::memory_order_acquire)) {
    if (api_ != nullptr && api_->level->load(std::memory_order_acquire) >= 1) {
      begun_ = api_->begin(name);
    }
  }
  ~Profiled() {
    if (begun_ != 0) api_->end(begun_);
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;

 private:
  const ProfilerApi* const api_;
  int64_t begun_ = 0;
};

}  // namespace hostcall
