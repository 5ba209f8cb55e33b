// The table from the ids that compiled programs hold to the Python objects that they call.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "call_table.h"
#include "stats.h"

namespace hostcall {

// The way in which a callback's function takes its arguments and gives its results.
struct Convention {
  // It takes the framework's tensors where these exist, otherwise arrays.
  bool takes_tensors = false;
  // It only reads the arrays, and only during the call: they need not be its own.
  bool borrows = false;
  // It writes its results into arrays that it gets as `out`.
  bool takes_out = false;
  // Arrays may lie in the program's memory: false if a call may outlast the program. A device's
  // memory is never shared.
  bool shares_memory = false;
  // The target's `empty` makes the memory of large arguments: they go to another process.
  bool allocates = false;
  // It takes arrays where they lie, on a device too, by DLPack: see loans.h.
  bool on_device = false;
  // Its calls may run beside others of the same run, on any thread: see turns.h.
  bool concurrent = false;
};

// A registered callback. It can be used after a look-up; once unregistered it holds no Python
// object.
class Callback {
 public:
  Callback(std::string name, std::string label, nanobind::object weak_target,
           const Convention& convention, Py_ssize_t slot)
      : name_(std::move(name)),
        label_(std::move(label)),
        convention_(convention),
        slot_(slot),
        weak_target_(std::move(weak_target)) {}

  const std::string& name() const { return name_; }

  // Returns the name in profiles and statistics.
  const std::string& label() const { return label_; }
  Stats& stats() { return stats_; }

  const Convention& convention() const { return convention_; }

  // Returns a strong reference, or a null object if the target has died. Needs the GIL.
  nanobind::object Target() const;

  // Returns the function of the living target: a new reference, or null with a Python error.
  PyObject* HostFunction(nanobind::handle target) const;

  // Takes out the Python object; the caller drops it with the GIL.
  nanobind::object Release() { return std::move(weak_target_); }

  // Sets the duration of the last call, for calls that may run on other threads.
  void SetDuration(std::chrono::nanoseconds duration) { duration_ = duration; }
  bool WasLong() const { return duration_.load() >= kLong; }
  bool WasShort() const { return duration_.load() > kNever && !WasLong(); }

 private:
  // The duration from which a call is worth its own thread: a change costs about a tenth of it.
  static constexpr std::chrono::microseconds kLong{200};
  static constexpr std::chrono::nanoseconds kNever{0};

  const std::string name_;
  const std::string label_;
  const Convention convention_;
  const Py_ssize_t slot_;  // the offset of the function in the target; 0 if it is in no slot
  Stats stats_;
  nanobind::object weak_target_;
  std::atomic<std::chrono::nanoseconds> duration_{kNever};
};

// The table of callbacks. Targets are held weakly: the graphs that use a callback own it, and a
// strong reference here would be the root of a cycle (callback -> model -> graph -> callback) that
// Python's collector cannot see. These members need the GIL, which guards the names.
class Registry : public CallTable<Callback, Registry> {
 public:
  // Returns the new id. Throws ValueError if a living callback has the name. For `wanted` see Ids.
  int64_t Insert(nanobind::object target, const std::string& name, const std::string& label,
                 const Convention& convention, int64_t wanted);
  void Remove(int64_t id);

  // Returns the target of the callback with a name, or a null object if it has died.
  nanobind::object FindByName(const std::string& name);

 private:
  std::unordered_map<std::string, int64_t> names_;
};

}  // namespace hostcall
