// The native code that compiled programs call, by the ids that they hold.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "call_table.h"
#include "ids.h"
#include "native_function.h"

namespace hostcall {

// The table of native code. Ids are never used again. No member needs the GIL, unless it says so.
class NativeTable {
 public:
  using Use = CallTable<NativeFunction>::Use;

  static NativeTable& Global();

  // Inserts a function and returns its id. For `wanted` see Ids.
  int64_t Insert(std::shared_ptr<NativeFunction> function, int64_t wanted = 0);

  // Removes an id. Calls under way keep `owner`. Needs the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // Finds a function for one call; null if nothing has the id.
  Use Find(int64_t id) { return Use(functions_, id); }

  // Returns all functions, sorted by id.
  std::vector<std::shared_ptr<NativeFunction>> All();

  // Makes `answer` answer the calls of a function (answered_function.h), or the function itself
  // again if it is None. Unknown ids are no error. Needs the GIL.
  void Answer(int64_t id, nanobind::object answer);

  // Keeps a function for ever: an asynchronous call may use it for an unknown time.
  void KeepForEver(std::shared_ptr<NativeFunction> function);

 private:
  static std::mutex& Mutex() { return Global().mutex_; }
  static std::mutex& MutexOfFunctions() { return Global().functions_.mutex(); }

  std::mutex mutex_;  // guards the other members
  Ids numbers_;
  std::unordered_set<std::shared_ptr<NativeFunction>> kept_;
  CallTable<NativeFunction> functions_;
};

}  // namespace hostcall
