// Which compiled programs the current thread is about to run, or compiles for that.
#pragma once

namespace hostcall {

// A program that this thread is in the midst of launching; its kernel stands for it.
class CurrentLaunch {
 public:
  explicit CurrentLaunch(const void* program) : program_(program), outer_(innermost_) {
    innermost_ = this;
  }
  ~CurrentLaunch() { innermost_ = outer_; }
  CurrentLaunch(const CurrentLaunch&) = delete;
  CurrentLaunch& operator=(const CurrentLaunch&) = delete;

  // Whether a program is compiled on this thread, which calls a Python function for that.
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
  CurrentLaunch* const outer_;
  bool folds_ = false;
};

// While it exists, the innermost program is compiled, and a Python function called for that. To run
// the program then would hang: TensorFlow holds a lock of it until it is compiled.
class FoldScope {
 public:
  FoldScope() : launching_(CurrentLaunch::innermost_) { Set(true); }
  ~FoldScope() { Set(false); }
  FoldScope(const FoldScope&) = delete;
  FoldScope& operator=(const FoldScope&) = delete;

 private:
  // There is none where programs are compiled to be shown.
  void Set(bool folds) const {
    if (launching_ != nullptr) launching_->folds_ = folds;
  }

  CurrentLaunch* const launching_;
};

}  // namespace hostcall
