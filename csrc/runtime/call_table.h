// A table from the ids that compiled programs hold to the objects that they call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "failure.h"
#include "fork.h"
#include "host_api.h"

namespace hostcall {

// Returns the first callback id of a process. It is random, so that a program of another process
// (from a saved model, say) finds nothing under its ids, rather than something else. It is
// positive, with room for more ids than a process can use.
inline int64_t FirstId() {
  std::random_device random;
  return (static_cast<int64_t>(random() & 0x3fffffff) << 32) + 1;
}

// The ids of a table, each given once.
class Ids {
 public:
  // Returns `wanted` unless it is 0: an id that another process with the same function has, too. If
  // it was given already, returns the next one of a series that is the same in each process.
  int64_t Next(int64_t wanted) {
    if (wanted == 0) return next_++;
    while (!given_.insert(wanted).second) wanted = After(wanted);
    return wanted;
  }

 private:
  static constexpr int64_t kMask = INT64_MAX >> 1;

  static int64_t After(int64_t id) {
    return static_cast<int64_t>(static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u + 1) & kMask;
  }

  int64_t next_ = FirstId();
  std::unordered_set<int64_t> given_;
};

// Returns the failure for a callback that is gone. Frames name no framework: without TensorFlow in
// the process, it is JAX.
inline Failure Gone(const char* kind, int64_t id) {
  const bool has_tensorflow = Host().tensors.make != nullptr;
  return Failure(
      xla::ffi::ErrorCode::kFailedPrecondition,
      std::string("The ") + kind + " function of the host callback with the id " +
          std::to_string(id) + " is gone: what this program was compiled from, " +
          (has_tensorflow ? "a graph of TensorFlow's or a jitted function of JAX's, "
                          : "a jitted function, ") +
          "has been deleted, or the program is another process's. Keep " +
          (has_tensorflow ? "the tf.function (or the model), or what jax.jit has returned, "
                          : "what jax.jit or lower(...).compile() has returned ") +
          "for as long as its program runs; from one process to another, programs go by "
          "hostcall.export.");
}

// The base of a `Table` of T. Ids are never used again, so that a program compiled for an object
// that is gone can never reach another one; none is 0. No member needs the GIL.
//
// A look-up for a call takes no lock, which native code would notice: it takes 3 ns, and 12 with a
// mutex or a shared lock around a map, which makes a call of native code 7 to 14 % longer. With 8
// threads on two cores it is 3 ns against 16 (benchmarks/README.md). So entries are never freed,
// and count their callers. An entry removed while calls are under way releases its object when the
// last of them ends; after that it may be used for another id.
template <typename T, typename Table>
class CallTable : public HeldAcrossFork<Table> {
  struct Entry;

 public:
  // An object, and the right to use it while this lives.
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

    // Returns null if nothing has the id.
    T* get() const { return entry_ == nullptr ? nullptr : entry_->object.get(); }
    T* operator->() const { return get(); }
    T& operator*() const { return *get(); }
    friend bool operator==(const Use& use, std::nullptr_t) { return use.entry_ == nullptr; }
    friend bool operator!=(const Use& use, std::nullptr_t) { return use.entry_ != nullptr; }

    // Returns an owner that may outlive this. The object must not be null.
    std::shared_ptr<T> shared() const { return entry_->object; }

   private:
    CallTable* table_ = nullptr;
    Entry* entry_ = nullptr;
  };

  // Finds an object for one call; null if nothing has the id.
  Use Find(int64_t id) { return Use(*this, id); }

  // Returns all objects in the order of their insertion.
  std::vector<std::shared_ptr<T>> All() {
    std::vector<std::pair<int64_t, std::shared_ptr<T>>> numbered;
    {
      std::lock_guard<std::mutex> lock(this->mutex_);
      for (const std::atomic<Entry*>& bucket : buckets_) {
        for (Entry* entry = bucket; entry != nullptr; entry = entry->next) {
          if (entry->id != kFree) numbered.emplace_back(entry->number, entry->object);
        }
      }
    }
    std::sort(numbered.begin(), numbered.end());
    std::vector<std::shared_ptr<T>> all;
    for (auto& [number, object] : numbered) all.push_back(std::move(object));
    return all;
  }

  size_t size() { return All().size(); }

 protected:
  // Inserts an object and returns its id. For `wanted` see Ids.
  int64_t Add(std::shared_ptr<T> object, int64_t wanted) {
    std::lock_guard<std::mutex> lock(this->mutex_);
    const int64_t id = ids_.Next(wanted);
    Put(id, inserted_++, std::move(object));
    return id;
  }

  // Removes an id. Unknown ids are not an error. May drop the object here, without the lock.
  void Drop(int64_t id) {
    std::shared_ptr<T> released;  // dropped last, without the lock
    std::lock_guard<std::mutex> lock(this->mutex_);
    if (Entry* entry = EntryOf(id); entry != nullptr) released = TakeAway(*entry);
  }

  // Gives an id another object, while calls of the earlier one may be under way. Unknown ids are no
  // error.
  void Replace(int64_t id, std::shared_ptr<T> object) {
    std::shared_ptr<T> released;  // dropped last, without the lock
    std::lock_guard<std::mutex> lock(this->mutex_);
    Entry* replaced = EntryOf(id);
    if (replaced == nullptr) return;
    Put(id, replaced->number, std::move(object));
    released = TakeAway(*replaced);
  }

 private:
  // The id of an entry that is free, or will be.
  static constexpr int64_t kFree = 0;

  // An entry. Its object is written under the mutex, and only while unused: before the id is set,
  // and after it was taken away and the last caller has left.
  struct Entry {
    std::atomic<int64_t> id{kFree};
    std::atomic<int64_t> callers{0};
    std::atomic<Entry*> next{nullptr};  // in the same bucket
    int64_t number = 0;                 // of insertions before; written under the mutex
    std::shared_ptr<T> object;
  };

  std::atomic<Entry*>& BucketOf(int64_t id) {
    return buckets_[static_cast<uint64_t>(id) % buckets_.size()];
  }

  // Returns the entry with an id, which has a caller more, or null.
  Entry* Enter(int64_t id) {
    if (Entry* entry = EntryOf(id); entry != nullptr) {
      entry->callers.fetch_add(1);
      // Code that takes the entry away from now on sees the caller.
      if (entry->id.load() == id) return entry;
      Leave(*entry);
    }
    // The slow path: the object of an id may have moved to another entry meanwhile.
    std::lock_guard<std::mutex> lock(this->mutex_);
    Entry* entry = EntryOf(id);
    if (entry != nullptr) entry->callers.fetch_add(1);
    return entry;
  }

  void Leave(Entry& entry) {
    entry.callers.fetch_sub(1);
    if (entry.id.load() != kFree) return;
    std::shared_ptr<T> released;  // dropped last, without the lock
    std::lock_guard<std::mutex> lock(this->mutex_);
    released = Unused(entry);
  }

  // Takes the id away from an entry; returns its object if that is unused. Needs the mutex: callers
  // that find the id gone when they leave wait for it.
  std::shared_ptr<T> TakeAway(Entry& entry) {
    entry.id = kFree;
    return Unused(entry);
  }

  // Returns the object of an entry, if that has no id and no use. Needs the mutex.
  std::shared_ptr<T> Unused(Entry& entry) {
    const bool used = entry.id != kFree || entry.callers != 0;
    return used ? nullptr : std::move(entry.object);
  }

  // Returns the entry that has an id now, or null.
  Entry* EntryOf(int64_t id) {
    if (id == kFree) return nullptr;  // a program may hold anything
    Entry* entry = BucketOf(id);
    while (entry != nullptr && entry->id != id) entry = entry->next;
    return entry;
  }

  // Puts an object into a free entry, or a new one. Needs the mutex.
  void Put(int64_t id, int64_t number, std::shared_ptr<T> object) {
    std::atomic<Entry*>& bucket = BucketOf(id);
    for (Entry* entry = bucket; entry != nullptr; entry = entry->next) {
      if (entry->id != kFree || entry->object != nullptr) continue;
      entry->number = number;
      entry->object = std::move(object);
      entry->id = id;
      return;
    }
    auto* entry = new Entry();  // never freed
    entry->number = number;
    entry->object = std::move(object);
    entry->next = bucket.load();
    entry->id = id;
    bucket = entry;
  }

  Ids ids_;
  int64_t inserted_ = 0;
  std::array<std::atomic<Entry*>, 1024> buckets_{};
};

}  // namespace hostcall
