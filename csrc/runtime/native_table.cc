#include "native_table.h"

#include <utility>

#include "answered_function.h"

namespace nb = nanobind;

namespace hostcall {

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
