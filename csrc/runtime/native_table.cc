#include "native_table.h"

#include <map>
#include <utility>

#include "answered_function.h"
#include "fork.h"

namespace nb = nanobind;

namespace hostcall {

NativeTable& NativeTable::Global() {
  // Leaked on purpose: XLA's threads may still look up while the process exits.
  static NativeTable* table = [] {
    HoldAcrossFork<&NativeTable::Mutex>();
    return new NativeTable();
  }();
  return *table;
}

int64_t NativeTable::Insert(std::shared_ptr<NativeFunction> function, int64_t wanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t id = numbers_.Next(wanted);
  Put(id, std::move(function));
  return id;
}

void NativeTable::Put(int64_t id, std::shared_ptr<NativeFunction> function) {
  std::atomic<Entry*>& bucket = BucketOf(id);
  for (Entry* entry = bucket; entry != nullptr; entry = entry->next) {
    if (entry->id != 0 || entry->function != nullptr) continue;
    entry->function = std::move(function);
    entry->id = id;
    return;
  }
  auto* entry = new Entry();  // for ever
  entry->id = id;
  entry->function = std::move(function);
  entry->next = bucket.load();
  bucket = entry;
}

NativeTable::Entry* NativeTable::EnterWithMutex(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = Find(id);
  if (entry != nullptr) entry->callers.fetch_add(1);
  return entry;
}

NativeTable::Entry* NativeTable::Find(int64_t id) {
  Entry* entry = BucketOf(id);
  while (entry != nullptr && entry->id != id) entry = entry->next;
  return entry;
}

void NativeTable::Remove(int64_t id, nb::object owner) {
  Entry* entry;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    entry = Find(id);
    if (entry == nullptr) return;
    entry->function->SetOwner(OwnerOf(std::move(owner)));
    entry->id = 0;
  }
  Release(*entry);
}

void NativeTable::Release(Entry& entry) {
  // Dropped last, without the lock: dropping the owner runs Python code.
  std::shared_ptr<NativeFunction> released;
  std::lock_guard<std::mutex> lock(mutex_);
  if (entry.id == 0 && entry.callers == 0) released = std::move(entry.function);
}

void NativeTable::Answer(int64_t id, nb::object answer) {
  Entry* before;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    before = Find(id);
    if (before == nullptr) return;
    const auto* answered = dynamic_cast<const AnsweredFunction*>(before->function.get());
    std::shared_ptr<NativeFunction> next =
        answered == nullptr ? before->function : answered->function();
    if (!answer.is_none()) next = std::make_shared<AnsweredFunction>(next, std::move(answer));
    // Another entry takes the place of this one, whose function may be under way.
    Put(id, std::move(next));
    before->id = 0;
  }
  Release(*before);
}

std::vector<std::shared_ptr<NativeFunction>> NativeTable::All() {
  std::map<int64_t, std::shared_ptr<NativeFunction>> sorted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const std::atomic<Entry*>& bucket : buckets_) {
      for (Entry* entry = bucket; entry != nullptr; entry = entry->next) {
        if (entry->id != 0) sorted.emplace(entry->id, entry->function);
      }
    }
  }
  std::vector<std::shared_ptr<NativeFunction>> all;
  for (auto& [id, function] : sorted) all.push_back(std::move(function));
  return all;
}

void NativeTable::KeepForEver(std::shared_ptr<NativeFunction> function) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.insert(std::move(function));
}

}  // namespace hostcall
