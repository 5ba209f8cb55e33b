// A table from the ids that compiled programs hold to what they call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace hostcall {

// Ids are not 0. A look-up takes no lock: that would cost a call more than a small function
// takes. So entries are never freed, and each counts its callers. One that is removed while calls
// are under way lets go of its object when the last of them ends; after that it may be used for
// another id. Thread-safe.
template <typename T>
class CallTable {
  struct Entry;

 public:
  // An object, and the right to use it until this ends.
  class Use {
   public:
    Use() = default;
    Use(CallTable& table, int64_t id) : table_(&table), entry_(table.Enter(id)) {}
    ~Use() {
      if (entry_ != nullptr) table_->Leave(*entry_);
    }
    Use(Use&& other) noexcept
        : table_(other.table_), entry_(std::exchange(other.entry_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(entry_, other.entry_);
      return *this;
    }

    // Null when nothing has the id.
    T* get() const { return entry_ == nullptr ? nullptr : entry_->object.get(); }
    T* operator->() const { return get(); }
    T& operator*() const { return *get(); }
    friend bool operator==(const Use& use, std::nullptr_t) { return use.entry_ == nullptr; }
    friend bool operator!=(const Use& use, std::nullptr_t) { return use.entry_ != nullptr; }

    // For who uses it beyond the end of this. Not of a null one.
    std::shared_ptr<T> shared() const { return entry_->object; }

   private:
    CallTable* table_ = nullptr;
    Entry* entry_ = nullptr;
  };

  // The table must not have the id.
  void Insert(int64_t id, std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    Put(id, std::move(object));
  }

  // The object of an id; null when nothing has it.
  std::shared_ptr<T> Find(int64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Entry* entry = EntryOf(id);
    return entry == nullptr ? nullptr : entry->object;
  }

  // Unknown ids are no error. The object may be dropped here, without the lock.
  void Remove(int64_t id) {
    Entry* removed;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      removed = EntryOf(id);
      if (removed == nullptr) return;
      removed->id = kFree;
    }
    Release(*removed);
  }

  // Has an id stand for another object, while calls of the one before may be under way. Unknown ids
  // are no error.
  void Replace(int64_t id, std::shared_ptr<T> object) {
    Entry* replaced;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      replaced = EntryOf(id);
      if (replaced == nullptr) return;
      Put(id, std::move(object));
      replaced->id = kFree;
    }
    Release(*replaced);
  }

  // Those that there are.
  std::vector<std::pair<int64_t, std::shared_ptr<T>>> All() {
    std::vector<std::pair<int64_t, std::shared_ptr<T>>> all;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const std::atomic<Entry*>& bucket : buckets_) {
      for (Entry* entry = bucket; entry != nullptr; entry = entry->next) {
        if (entry->id != kFree) all.emplace_back(entry->id, entry->object);
      }
    }
    return all;
  }

  // For fork.h.
  std::mutex& mutex() { return mutex_; }

 private:
  // Stands in the place of an id in an entry that is free, or will be.
  static constexpr int64_t kFree = 0;

  // The object is written with the mutex, where nobody may be using it: before the id is set, and
  // after it was taken away and the last caller has left.
  struct Entry {
    std::atomic<int64_t> id{kFree};
    std::atomic<int64_t> callers{0};
    std::atomic<Entry*> next{nullptr};  // of the same bucket
    std::shared_ptr<T> object;
  };

  std::atomic<Entry*>& BucketOf(int64_t id) {
    return buckets_[static_cast<uint64_t>(id) % buckets_.size()];
  }

  // The entry with an id, with one more caller; null when nothing has it.
  Entry* Enter(int64_t id) {
    if (id == kFree) return nullptr;  // a program may hold anything
    Entry* entry = BucketOf(id).load(std::memory_order_acquire);
    for (; entry != nullptr; entry = entry->next.load(std::memory_order_acquire)) {
      if (entry->id.load(std::memory_order_relaxed) != id) continue;
      entry->callers.fetch_add(1);
      if (entry->id.load() == id) return entry;  // and whoever takes it away now sees the caller
      Leave(*entry);
    }
    // Slowly: the object of an id may have moved to another entry meanwhile.
    std::lock_guard<std::mutex> lock(mutex_);
    entry = EntryOf(id);
    if (entry != nullptr) entry->callers.fetch_add(1);
    return entry;
  }

  void Leave(Entry& entry) {
    if (entry.callers.fetch_sub(1) == 1 && entry.id.load() == kFree) Release(entry);
  }

  // Lets go of the object of an entry that has no id and no caller.
  void Release(Entry& entry) {
    std::shared_ptr<T> released;  // dropped last, without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    if (entry.id == kFree && entry.callers == 0) released = std::move(entry.object);
  }

  // With the mutex.
  Entry* EntryOf(int64_t id) {
    if (id == kFree) return nullptr;
    Entry* entry = BucketOf(id);
    while (entry != nullptr && entry->id != id) entry = entry->next;
    return entry;
  }

  // With the mutex.
  void Put(int64_t id, std::shared_ptr<T> object) {
    std::atomic<Entry*>& bucket = BucketOf(id);
    for (Entry* entry = bucket; entry != nullptr; entry = entry->next) {
      if (entry->id != kFree || entry->object != nullptr) continue;
      entry->object = std::move(object);
      entry->id = id;
      return;
    }
    auto* entry = new Entry();  // for ever
    entry->object = std::move(object);
    entry->next = bucket.load();
    entry->id = id;
    bucket = entry;
  }

  std::mutex mutex_;
  std::array<std::atomic<Entry*>, 1024> buckets_{};
};

}  // namespace hostcall
