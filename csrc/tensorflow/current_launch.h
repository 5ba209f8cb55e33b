// Compiled programs that the current thread is about to run, or compiles for a run.
#pragma once

#include <cstdint>

#include "starters.h"

namespace hostcall {

// A program that this thread is launching; its kernel stands for it.
class CurrentLaunch {
 public:
  // `run` is the number of the run that the launch is a part of, or starters::kNoRun.
  CurrentLaunch(const void* program, int64_t run)
      : program_(program), run_(run), outer_(innermost_) {
    innermost_ = this;
  }
  ~CurrentLaunch() { innermost_ = outer_; }
  CurrentLaunch(const CurrentLaunch&) = delete;
  CurrentLaunch& operator=(const CurrentLaunch&) = delete;

  // Returns the number of the run that this thread's innermost launch is a part of, or
  // starters::kNoRun.
  static int64_t Run() { return innermost_ == nullptr ? starters::kNoRun : innermost_->run_; }

  // Returns true if this thread compiles the program, and calls a Python function for that.
  static bool IsFolding(const void* program) {
    for (const CurrentLaunch* one = innermost_; one != nullptr; one = one->outer_) {
      if (one->program_ == program && one->folds_) return true;
    }
    return false;
  }

 private:
  friend class FoldScope;

  static inline thread_local CurrentLaunch* innermost_ = nullptr;

  const void* const program_;
  const int64_t run_;
  CurrentLaunch* const outer_;
  bool folds_ = false;
};

// Scope in which the innermost program is compiled, and a Python function is called for that.
// Running the program would hang: TensorFlow holds its lock until it is compiled.
class FoldScope {
 public:
  FoldScope() : launching_(CurrentLaunch::innermost_) { Set(true); }
  ~FoldScope() { Set(false); }
  FoldScope(const FoldScope&) = delete;
  FoldScope& operator=(const FoldScope&) = delete;

 private:
  // Does nothing if a program is compiled only to be shown, without a launch.
  void Set(bool folds) const {
    if (launching_ != nullptr) launching_->folds_ = folds;
  }

  CurrentLaunch* const launching_;
};

}  // namespace hostcall
