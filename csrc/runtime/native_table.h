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

// Ids are never used again. Nothing here wants the GIL, but for what says so.
class NativeTable {
 public:
  using Use = CallTable<NativeFunction>::Use;

  static NativeTable& Global();

  // For `wanted` see Ids.
  int64_t Insert(std::shared_ptr<NativeFunction> function, int64_t wanted = 0);

  // Calls that are under way keep `owner`. With the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // For one call. Null when nothing has the id.
  Use Find(int64_t id) { return Use(functions_, id); }

  // Those that there are, in the order in which they came.
  std::vector<std::shared_ptr<NativeFunction>> All();

  // Has `answer` answer the calls of a function (answered_function.h), or nobody any more where it
  // is None. Unknown ids are no error. With the GIL.
  void Answer(int64_t id, nanobind::object answer);

  // One that will never end: an asynchronous call may use it, and nobody says until when.
  void KeepForEver(std::shared_ptr<NativeFunction> function);

 private:
  static std::mutex& Mutex() { return Global().mutex_; }
  static std::mutex& MutexOfFunctions() { return Global().functions_.mutex(); }

  std::mutex mutex_;  // of the other members
  Ids numbers_;
  std::unordered_set<std::shared_ptr<NativeFunction>> kept_;
  CallTable<NativeFunction> functions_;
};

}  // namespace hostcall
