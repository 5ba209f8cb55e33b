// Starters of the runs that are under way: hostcall_runtime._runs. A call sees the settings of its
// run's starter, on whatever thread it runs.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace hostcall::starters {

constexpr int64_t kNoRun = 0;

// Records a new run, which this thread has started or, if `of` is a run, that run's starter.
void Begin(int64_t run, int64_t of);
void End(int64_t run);

// A run that a thread of Python's has started. It is under way for as long as this lives.
class Run {
 public:
  Run();
  ~Run() { End(number_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  int64_t number() const { return number_; }

 private:
  const int64_t number_;
};

using StartedRun = std::shared_ptr<const Run>;

inline int64_t NumberOf(const StartedRun& run) { return run == nullptr ? kNoRun : run->number(); }

// Scope in which this thread works for a run.
class Scope {
 public:
  explicit Scope(StartedRun run);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  StartedRun before_;
};

// Returns the run that this thread works for; null if it works for itself.
const StartedRun& Current();

// Returns the same for work on another thread. If a thread of Python's works for itself, starts a
// run; any other thread gets null.
StartedRun CurrentOrNew();

// Wraps a task for another thread, so that calls in it see the settings of its starter.
std::function<void()> OfItsStarter(std::function<void()> task);

// Defines the Python side.
void Define(nanobind::module_& m);

}  // namespace hostcall::starters
