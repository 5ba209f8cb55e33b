// Runs of partitioned functions whose calls are given up on Ctrl-C. Python's main thread waits for
// a run within TensorFlow, where Python's signal handlers do not run before the run has ended.
#pragma once

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

  // Returns the calls of the run that an op belongs to; null if Ctrl-C does not give them up.
  static std::shared_ptr<CallsOfRun> Of(const tensorflow::OpKernelContext& ctx);

  // Returns the run, by which its starter is found.
  const starters::StartedRun& run() const { return run_; }

  // Returns the number of a call, for `Remove`. Gives the call up if the run is over already.
  int64_t Add(GiveUp give_up);
  void Remove(int64_t call);

  void GiveUpAll(const absl::Status& error);

 private:
  const starters::StartedRun run_;
  std::mutex mutex_;
  absl::Status error_;  // of a run that was given up
  int64_t next_ = 0;
  std::map<int64_t, GiveUp> calls_;
};

// Scope in which a thread of Python's waits for a run, which Ctrl-C ends.
class InterruptibleRun {
 public:
  using Runner = std::function<void(std::function<void()>)>;

  explicit InterruptibleRun(const Runner& runner);
  ~InterruptibleRun();
  InterruptibleRun(const InterruptibleRun&) = delete;
  InterruptibleRun& operator=(const InterruptibleRun&) = delete;

  // Returns the runner that the run must have. TensorFlow passes it on to all functions that ops
  // call, and passes on nothing else that identifies the run.
  Runner* runner() { return &runner_; }

 private:
  Runner runner_;
  int64_t number_;
};

// Returns the run that an op belongs to; null if this thread starts a run with the op.
starters::StartedRun StartedRunOf(const tensorflow::OpKernelContext& ctx);

}  // namespace hostcall
