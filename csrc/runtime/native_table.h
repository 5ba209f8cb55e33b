// The table from the ids that compiled programs hold to the native code that they call.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "ids.h"
#include "native_function.h"

namespace hostcall {

// Ids are never used again. Nothing here wants the GIL, but for what says so.
//
// A look-up takes no lock: that would cost a call more than a small function takes. So entries are
// never freed, and each counts its callers. One that is removed while calls are under way lets go
// of its function when the last of them ends; after that it may be used for another id.
class NativeTable {
  struct Entry;

 public:
  static NativeTable& Global();

  // A function, and the right to call it until this ends.
  class Use {
   public:
    Use(NativeTable& table, int64_t id) : table_(table), entry_(table.Enter(id)) {}
    ~Use() {
      if (entry_ != nullptr) table_.Leave(*entry_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    // Null when nothing has the id.
    NativeFunction* function() const {
      return entry_ == nullptr ? nullptr : entry_->function.get();
    }

    // Has the function never end: an asynchronous call may use it, and nobody says until when.
    void KeepForEver() const { table_.KeepForEver(entry_->function); }

   private:
    NativeTable& table_;
    Entry* const entry_;
  };

  // For `wanted` see Ids.
  int64_t Insert(std::shared_ptr<NativeFunction> function, int64_t wanted = 0);

  // Calls that are under way keep `owner`. With the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // Those that there are, in the order in which they came.
  std::vector<std::shared_ptr<NativeFunction>> All();

  // Has `answer` answer the calls of a function (answered_function.h), or nobody any more where it
  // is None. Unknown ids are no error. With the GIL.
  void Answer(int64_t id, nanobind::object answer);

 private:
  // The function is written with the mutex, where nobody may be calling it: before the id is set,
  // and after it was taken away and the last caller has left.
  struct Entry {
    std::atomic<int64_t> id{0};  // 0 for one that is free, or will be
    std::atomic<int64_t> callers{0};
    std::atomic<Entry*> next{nullptr};  // of the same bucket
    std::shared_ptr<NativeFunction> function;
  };

  static std::mutex& Mutex() { return Global().mutex_; }

  std::atomic<Entry*>& BucketOf(int64_t id) {
    return buckets_[static_cast<uint64_t>(id) % buckets_.size()];
  }

  // The entry with an id, with one more caller; null when nothing has it.
  Entry* Enter(int64_t id) {
    Entry* entry = BucketOf(id).load(std::memory_order_acquire);
    for (; entry != nullptr; entry = entry->next.load(std::memory_order_acquire)) {
      if (entry->id.load(std::memory_order_relaxed) != id) continue;
      entry->callers.fetch_add(1);
      if (entry->id.load() == id) return entry;  // and whoever takes it away now sees the caller
      Leave(*entry);
    }
    return EnterWithMutex(id);
  }

  // The same, if slowly: the function of an id may have moved to another entry meanwhile.
  Entry* EnterWithMutex(int64_t id);

  void Leave(Entry& entry) {
    if (entry.callers.fetch_sub(1) == 1 && entry.id.load() == 0) Release(entry);
  }

  // Lets go of the function of an entry that has no id and no caller.
  void Release(Entry& entry);

  // With the mutex.
  Entry* Find(int64_t id);
  void Put(int64_t id, std::shared_ptr<NativeFunction> function);

  void KeepForEver(std::shared_ptr<NativeFunction> function);

  std::mutex mutex_;
  Ids numbers_;
  std::array<std::atomic<Entry*>, 1024> buckets_{};
  std::unordered_set<std::shared_ptr<NativeFunction>> kept_;
};

}  // namespace hostcall
