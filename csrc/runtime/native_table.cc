#include "native_table.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "gil.h"
#include "results.h"
#include "text.h"

namespace ffi = xla::ffi;
namespace nb = nanobind;

namespace hostcall {
namespace {

nb::list ArraysOf(const RawBuffers& buffers) {
  nb::list arrays;
  for (const XLA_FFI_Buffer* buffer : buffers) arrays.append(ToNumpy(Buffer(*buffer)));
  return arrays;
}

// A call of the native code, at most one, and only while the frame exists. Needs the GIL.
class OneCall {
 public:
  OneCall(const NativeFunction& function, const NativeFrame& frame)
      : function_(&function), frame_(&frame) {}

  nb::object operator()() {
    if (frame_ == nullptr || outcome_.has_value() || failure_.has_value()) {
      throw std::runtime_error("hostcall: a call of native code can be made once, in the call.");
    }
    WithoutGil([this] {
      try {
        outcome_ = function_->Call(*frame_);
      } catch (const Failure& failure) {
        failure_ = failure;
      }
    });
    if (failure_.has_value()) throw std::runtime_error(failure_->what());
    // The time when it will have written its results is unknown.
    if (outcome_->future != nullptr) return nb::borrow(Py_NotImplemented);
    if (outcome_->error != nullptr) {
      throw std::runtime_error(ffi::internal::GetErrorMessage(frame_->whole.api, outcome_->error));
    }
    return ArraysOf(frame_->results);
  }

  // Returns the outcome of the call; nothing if it was not made.
  std::optional<NativeOutcome> End() {
    frame_ = nullptr;
    if (failure_.has_value()) throw *failure_;
    return std::move(outcome_);
  }

 private:
  const NativeFunction* function_;
  const NativeFrame* frame_;
  std::optional<NativeOutcome> outcome_;
  std::optional<Failure> failure_;
};

void Store(nb::handle returned, const NativeFrame& frame, const std::string& label) {
  DeferredDecrefScope decrefs;
  ConvertAndStore(
      returned, BuffersOf(frame.results), /*abandonment=*/nullptr, [&] { return label; }, decrefs);
}

// Returns an owner that takes the GIL to drop the object.
std::shared_ptr<void> OwnerOf(nb::object owner) {
  return std::shared_ptr<void>(owner.release().ptr(), [](void* object) {
    if (object == nullptr || !PythonIsRunning()) return;
    GilHold gil;
    UntilExit([object] { Py_DECREF(static_cast<PyObject*>(object)); });
  });
}

// A stand-in for a function while Python answers its calls. It takes the GIL, which native code
// does without, and copies arguments and results.
class AnsweredFunction : public NativeFunction {
 public:
  AnsweredFunction(std::shared_ptr<NativeFunction> function, nb::object answer)
      : NativeFunction(function->label()),
        function_(std::move(function)),
        answer_(OwnerOf(std::move(answer))) {}

  NativeOutcome Call(const NativeFrame& frame) const override {
    if (!PythonIsRunning()) return function_->Call(frame);
    GilHold gil;
    const auto run = std::make_shared<OneCall>(*function_, frame);
    try {
      const nb::object call = nb::cpp_function([run] { return (*run)(); });
      const nb::object returned =
          nb::handle(static_cast<PyObject*>(answer_.get()))(ArraysOf(frame.operands), call);
      if (std::optional<NativeOutcome> outcome = run->End(); outcome.has_value()) return *outcome;
      if (nb::isinstance<nb::tuple>(returned)) {
        throw Failure(static_cast<ffi::ErrorCode>(nb::cast<int>(returned[0])), Text(returned[1]));
      }
      Store(returned, frame, label());
      return {};
    } catch (const Failure&) {
      throw;
    } catch (const std::exception& error) {
      if (std::optional<NativeOutcome> outcome = run->End(); outcome.has_value()) return *outcome;
      throw Failure(ffi::ErrorCode::kInternal, error.what());
    }
  }

  Stats& stats() override { return function_->stats(); }
  void SetOwner(std::shared_ptr<void> owner) override { function_->SetOwner(std::move(owner)); }

  // Returns the function that this stands in for.
  const std::shared_ptr<NativeFunction>& function() const { return function_; }

 private:
  const std::shared_ptr<NativeFunction> function_;
  const std::shared_ptr<void> answer_;
};

}  // namespace

void NativeTable::Remove(int64_t id, nb::object owner) {
  const Use function = Find(id);
  if (function == nullptr) return;
  // The last holder of the function drops the owner, which runs Python code.
  function->SetOwner(OwnerOf(std::move(owner)));
  Drop(id);
}

void NativeTable::Answer(int64_t id, nb::object answer) {
  const Use found = Find(id);
  if (found == nullptr) return;
  const std::shared_ptr<NativeFunction> now = found.shared();
  const auto* answered = dynamic_cast<const AnsweredFunction*>(now.get());
  std::shared_ptr<NativeFunction> next = answered == nullptr ? now : answered->function();
  if (!answer.is_none()) next = std::make_shared<AnsweredFunction>(next, std::move(answer));
  Replace(id, std::move(next));
}

void NativeTable::KeepForEver(std::shared_ptr<NativeFunction> function) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.insert(std::move(function));
}

}  // namespace hostcall
