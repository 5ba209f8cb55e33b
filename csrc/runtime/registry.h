// The table from the ids that compiled programs hold to the Python objects that they call.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "call_table.h"
#include "ids.h"
#include "stats.h"

namespace hostcall {

// How a callback's function takes its arguments and gives its results.
struct Convention {
  // It is given tensors of the framework's, where there are such, and else arrays.
  bool takes_tensors = false;
  // It only reads the arrays, and only during the call: they need not be its own.
  bool borrows = false;
  // It writes its results into arrays that it is given as `out`.
  bool takes_out = false;
  // Whether arrays may lie in the program's memory: not where a call may outlast the program. That
  // of a device is never shared.
  bool shares_memory = false;
  // The target says where large arguments are to lie, by its `empty`: they go to another process.
  bool allocates = false;
  // It takes arrays where they lie, on a device too, by DLPack: see loans.h.
  bool on_device = false;
  // Its calls may run beside others of the same run, on any thread: see turns.h.
  bool concurrent = false;
};

// What is registered. Whoever has found it may use it; once it is unregistered it holds nothing of
// Python's any more.
class Callback {
 public:
  Callback(int64_t number, std::string name, std::string label, nanobind::object weak_target,
           const Convention& convention)
      : number_(number),
        name_(std::move(name)),
        label_(std::move(label)),
        convention_(convention),
        weak_target_(std::move(weak_target)) {}

  // How many were registered before.
  int64_t number() const { return number_; }

  const std::string& name() const { return name_; }

  // What profiles and statistics call it.
  const std::string& label() const { return label_; }
  Stats& stats() { return stats_; }

  const Convention& convention() const { return convention_; }

  // A strong reference, or a null object when the target has died. Wants the GIL.
  nanobind::object Target() const;

  // Takes out what is Python's; the caller drops it with the GIL.
  nanobind::object Release() { return std::move(weak_target_); }

  // How long the last call took, for calls that may run on other threads.
  void SetDuration(std::chrono::nanoseconds duration) { duration_ = duration; }
  bool WasLong() const { return duration_.load() >= kLong; }
  bool WasShort() const { return duration_.load() > kNever && !WasLong(); }

 private:
  // From here on a call is worth a thread of its own. Changing threads costs about a tenth of it.
  static constexpr std::chrono::microseconds kLong{200};
  static constexpr std::chrono::nanoseconds kNever{0};

  const int64_t number_;
  const std::string name_;
  const std::string label_;
  const Convention convention_;
  Stats stats_;
  nanobind::object weak_target_;
  std::atomic<std::chrono::nanoseconds> duration_{kNever};
};

// Ids are never used again, so that a program compiled for a callback that has died can never
// reach another one. Targets are held weakly: the graphs that use a callback own it, and a strong
// reference here would be the root of a cycle (callback -> model -> graph -> callback) that
// Python's collector cannot see.
//
// Every member wants the GIL, but for those that say otherwise. No mutex is held while Python code
// runs, so that a callback that is busy cannot delay others.
class Registry {
 public:
  static Registry& Global();

  // Throws ValueError when a living callback has the name already. For `wanted` see Ids.
  int64_t Insert(nanobind::object target, const std::string& name, const std::string& label,
                 const Convention& convention, int64_t wanted = 0);
  void Remove(int64_t id);

  // For one call. Null when nothing has the id. Does not want the GIL.
  using Use = CallTable<Callback>::Use;
  Use Find(int64_t id) { return Use(callbacks_, id); }

  // The target of the callback of a name, or a null object when it has died.
  nanobind::object FindByName(const std::string& name);

  // Those that are registered, in the order in which they were. Does not want the GIL.
  std::vector<std::shared_ptr<Callback>> All();

  size_t size();

 private:
  static std::mutex& Mutex() { return Global().mutex_; }
  static std::mutex& MutexOfCallbacks() { return Global().callbacks_.mutex(); }

  std::mutex mutex_;  // of the other members
  Ids numbers_;
  int64_t inserted_ = 0;
  std::unordered_map<std::string, int64_t> ids_;
  CallTable<Callback> callbacks_;
};

}  // namespace hostcall
