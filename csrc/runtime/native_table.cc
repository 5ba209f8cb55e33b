#include "native_table.h"

#include <algorithm>
#include <utility>

#include "answered_function.h"
#include "fork.h"

namespace nb = nanobind;

namespace hostcall {

NativeTable& NativeTable::Global() {
  // Leaked: XLA's threads may still look up while the process exits.
  static NativeTable* table = [] {
    HoldAcrossFork<&NativeTable::Mutex>();
    HoldAcrossFork<&NativeTable::MutexOfFunctions>();
    return new NativeTable();
  }();
  return *table;
}

int64_t NativeTable::Insert(std::shared_ptr<NativeFunction> function, int64_t wanted) {
  int64_t id;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    id = numbers_.Next(wanted);
  }
  functions_.Insert(id, std::move(function));
  return id;
}

void NativeTable::Remove(int64_t id, nb::object owner) {
  const std::shared_ptr<NativeFunction> function = functions_.Find(id);
  if (function == nullptr) return;
  // The last holder of the function drops the owner, which runs Python code.
  function->SetOwner(OwnerOf(std::move(owner)));
  functions_.Remove(id);
}

void NativeTable::Answer(int64_t id, nb::object answer) {
  const std::shared_ptr<NativeFunction> now = functions_.Find(id);
  if (now == nullptr) return;
  const auto* answered = dynamic_cast<const AnsweredFunction*>(now.get());
  std::shared_ptr<NativeFunction> next = answered == nullptr ? now : answered->function();
  if (!answer.is_none()) next = std::make_shared<AnsweredFunction>(next, std::move(answer));
  functions_.Replace(id, std::move(next));
}

std::vector<std::shared_ptr<NativeFunction>> NativeTable::All() {
  auto entries = functions_.All();
  std::sort(entries.begin(), entries.end());
  std::vector<std::shared_ptr<NativeFunction>> all;
  for (auto& [id, function] : entries) all.push_back(std::move(function));
  return all;
}

void NativeTable::KeepForEver(std::shared_ptr<NativeFunction> function) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.insert(std::move(function));
}

}  // namespace hostcall
