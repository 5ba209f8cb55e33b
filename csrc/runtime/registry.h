// The table from the ids that compiled programs hold to the Python objects that they call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace hostcall {

// Ids are never used again, so that a program compiled for a callback that has died can never
// reach another one. Targets are held weakly: the graphs that use a callback own it, and a strong
// reference here would be the root of a cycle (callback -> model -> graph -> callback) that
// Python's collector cannot see.
//
// Every member wants the GIL, but for those that say otherwise. The mutex guards the tables alone
// and is never held while Python code runs, so that a callback that is busy cannot delay a lookup.
class Registry {
 public:
  static Registry& Global();

  // Throws ValueError when a living callback has the name already.
  int64_t Insert(nanobind::object target, const std::string& name);
  void Remove(int64_t id);

  // A strong reference, or a null object when the target has died.
  nanobind::object Find(int64_t id);
  nanobind::object FindByName(const std::string& name);

  // How long the last call took, for callbacks that may overlap. Neither wants the GIL.
  void SetDuration(int64_t id, std::chrono::nanoseconds duration);
  std::chrono::nanoseconds Duration(int64_t id);

  size_t size();

 private:
  static std::mutex& Mutex() { return Global().mutex_; }

  struct Entry {
    std::string name;
    nanobind::object weak_target;
    std::chrono::nanoseconds duration{0};
  };

  std::mutex mutex_;
  int64_t next_id_ = 1;
  std::unordered_map<int64_t, Entry> entries_;
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace hostcall
