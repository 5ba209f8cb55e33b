// Native code with calls that Python answers: hostcall.record and hostcall.replay.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "native_function.h"

namespace hostcall {

// Returns an owner that takes the GIL to drop the object.
std::shared_ptr<void> OwnerOf(nanobind::object owner);

// A stand-in for a function while Python answers its calls. It takes the GIL, which native code
// does without, and copies arguments and results.
class AnsweredFunction : public NativeFunction {
 public:
  // Takes `answer`. That gets a list of arrays, the arguments, and a function without parameters,
  // which calls the native code and returns a list of its results. `answer` returns a list of the
  // results, or a tuple of a status code and a message, with which the call fails. If the native
  // code was called, its outcome counts. Needs the GIL.
  AnsweredFunction(std::shared_ptr<NativeFunction> function, nanobind::object answer);

  NativeOutcome Call(const NativeFrame& frame) const override;

  Stats& stats() override { return function_->stats(); }
  void SetOwner(std::shared_ptr<void> owner) override { function_->SetOwner(std::move(owner)); }

  // Returns the function that this stands in for.
  const std::shared_ptr<NativeFunction>& function() const { return function_; }

 private:
  const std::shared_ptr<NativeFunction> function_;
  const std::shared_ptr<void> answer_;
};

}  // namespace hostcall
