// Native code whose calls Python answers: hostcall.record and hostcall.replay.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "native_function.h"

namespace hostcall {

// Takes the GIL to drop it.
std::shared_ptr<void> OwnerOf(nanobind::object owner);

// In the place of a function as long as somebody answers. It takes the GIL, which native code does
// without, and copies what is passed.
class AnsweredFunction : public NativeFunction {
 public:
  // `answer` takes a list of arrays, the arguments, and a function without parameters, which calls
  // the native code and returns a list of its results. It returns a list of the results, or a tuple
  // of a status code and a message, with which the call fails. What the native code has come to
  // counts, where it was called. With the GIL.
  AnsweredFunction(std::shared_ptr<NativeFunction> function, nanobind::object answer);

  NativeOutcome Call(const NativeFrame& frame) const override;

  Stats& stats() override { return function_->stats(); }
  void SetOwner(std::shared_ptr<void> owner) override { function_->SetOwner(std::move(owner)); }

  // In whose place it is.
  const std::shared_ptr<NativeFunction>& function() const { return function_; }

 private:
  const std::shared_ptr<NativeFunction> function_;
  const std::shared_ptr<void> answer_;
};

}  // namespace hostcall
