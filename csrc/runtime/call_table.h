// A table from the ids that compiled programs hold to the objects that they call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fork.h"
#include "ids.h"

namespace hostcall {

// The base of a `Table` of T. A call keeps the object that it has found. Ids are never used again,
// so that a program compiled for an object that is gone can never reach another one. No member
// needs the GIL.
template <typename T, typename Table>
class CallTable : public HeldAcrossFork<Table> {
 public:
  // Returns the object of an id, or null if nothing has the id.
  std::shared_ptr<T> Find(int64_t id) {
    std::lock_guard<std::mutex> lock(this->mutex_);
    const auto entry = entries_.find(id);
    return entry == entries_.end() ? nullptr : entry->second.object;
  }

  // Returns all objects in the order of their insertion.
  std::vector<std::shared_ptr<T>> All() {
    std::vector<Entry> entries;
    {
      std::lock_guard<std::mutex> lock(this->mutex_);
      for (const auto& [id, entry] : entries_) entries.push_back(entry);
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.number < b.number; });
    std::vector<std::shared_ptr<T>> all;
    for (Entry& entry : entries) all.push_back(std::move(entry.object));
    return all;
  }

  size_t size() {
    std::lock_guard<std::mutex> lock(this->mutex_);
    return entries_.size();
  }

 protected:
  // Inserts an object and returns its id. For `wanted` see Ids.
  int64_t Add(std::shared_ptr<T> object, int64_t wanted) {
    std::lock_guard<std::mutex> lock(this->mutex_);
    const int64_t id = ids_.Next(wanted);
    entries_[id] = {inserted_++, std::move(object)};
    return id;
  }

  // Gives an id another object. Unknown ids are no error.
  void Replace(int64_t id, std::shared_ptr<T> object) {  // drops the old one without the lock
    std::lock_guard<std::mutex> lock(this->mutex_);
    const auto entry = entries_.find(id);
    if (entry != entries_.end()) entry->second.object.swap(object);
  }

  // Forgets an id. Unknown ids are no error.
  void Drop(int64_t id) {
    std::shared_ptr<T> dropped;  // without the lock
    std::lock_guard<std::mutex> lock(this->mutex_);
    if (auto node = entries_.extract(id); !node.empty()) dropped = std::move(node.mapped().object);
  }

 private:
  struct Entry {
    int64_t number;
    std::shared_ptr<T> object;
  };

  Ids ids_;
  int64_t inserted_ = 0;
  std::unordered_map<int64_t, Entry> entries_;
};

}  // namespace hostcall
