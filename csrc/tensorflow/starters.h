// Who has started the runs that are under way: hostcall_runtime._runs. A call sees the settings
// of who has started its run, on whatever thread it comes to pass.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

namespace hostcall::starters {

constexpr int64_t kNoRun = 0;

// A run begins, which this thread has started; or where `of` is a run, whoever has started that.
void Begin(int64_t run, int64_t of);
void End(int64_t run);

// What a thread of Python's has started. It is under way for as long as this lives.
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

// While one lives, this thread does something for a run.
class Scope {
 public:
  explicit Scope(StartedRun run);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  StartedRun before_;
};

// The run that this thread does something for; null where that is its own.
const StartedRun& Current();

// The same for what goes on elsewhere. A thread of Python's that does something of its own starts
// a run; null on any other.
StartedRun CurrentOrNew();

// Defines the Python side.
void Define(nanobind::module_& m);

}  // namespace hostcall::starters
