// Starters of the runs that are under way (hostcall_runtime._runs), and threads that work for
// these. A call sees the settings of its run's starter, on whatever thread it runs.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

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

}  // namespace hostcall::starters

namespace hostcall {

// Returns true on a thread that Python knows: the caller's own, or one of the pool's.
bool IsThreadOfPython();

// Runs a task that may hold its thread for long: on this thread, unless it is TensorFlow's own, and
// else on one of the pool's. Returns an error if no thread could be had.
//
// A program that calls Python holds its thread until the callbacks have returned. On one of
// TensorFlow's few inter-op threads, a callback that runs a graph itself would wait for ever.
absl::Status RunBesideTensorFlow(std::function<void()> task);

}  // namespace hostcall
