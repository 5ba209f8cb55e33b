// Runs of partitioned functions whose calls are given up when Ctrl-C comes. Python's main thread
// waits for such a run within TensorFlow, where Python's handlers of signals do not run before it
// has ended.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "starters.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// The calls of a run that have begun and not ended.
class CallsOfRun {
 public:
  using GiveUp = std::function<void(const absl::Status&)>;

  explicit CallsOfRun(starters::StartedRun run) : run_(std::move(run)) {}

  // Those of the run that an op belongs to; null where nobody gives these up.
  static std::shared_ptr<CallsOfRun> Of(const tensorflow::OpKernelContext& ctx);

  // By which its starter is found.
  const starters::StartedRun& run() const { return run_; }

  // Returns the number of a call, for `Remove`. Where the run is over already, gives it up.
  int64_t Add(GiveUp give_up);
  void Remove(int64_t call);

  void GiveUpAll(const absl::Status& error);

 private:
  const starters::StartedRun run_;
  std::mutex mutex_;
  absl::Status error_;  // of a run that is over
  int64_t next_ = 0;
  std::map<int64_t, GiveUp> calls_;
};

// While one lives, a thread of Python's waits for a run, which Ctrl-C ends.
class InterruptibleRun {
 public:
  using Runner = std::function<void(std::function<void()>)>;

  explicit InterruptibleRun(const Runner& runner);
  ~InterruptibleRun();
  InterruptibleRun(const InterruptibleRun&) = delete;
  InterruptibleRun& operator=(const InterruptibleRun&) = delete;

  // What the run has to have as its runner. TensorFlow hands it on to all functions that ops call,
  // and nothing else that tells the run.
  Runner* runner() { return &runner_; }

 private:
  Runner runner_;
  int64_t number_;
};

// The run that an op belongs to; null where this thread starts one with the op.
starters::StartedRun StartedRunOf(const tensorflow::OpKernelContext& ctx);

// Whether the thread is one of Python's, which may start such a run.
bool IsThreadOfPython();

// Defines the Python side.
void DefineInterruptibleRuns(nanobind::module_& m);

}  // namespace hostcall
