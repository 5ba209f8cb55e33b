// The native code that compiled programs call, by the ids that they hold.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "call_table.h"
#include "native_function.h"

namespace hostcall {

// The table of native code.
class NativeTable : public CallTable<NativeFunction, NativeTable> {
 public:
  // Inserts a function and returns its id. For `wanted` see Ids.
  int64_t Insert(std::shared_ptr<NativeFunction> function, int64_t wanted) {
    return Add(std::move(function), wanted);
  }

  // Removes an id. Calls under way keep `owner`. Needs the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // Makes `answer` answer the calls of a function (answered_function.h), or the function itself
  // again if it is None. Unknown ids are no error. Needs the GIL.
  void Answer(int64_t id, nanobind::object answer);

  // Keeps a function for ever: an asynchronous call may use it for an unknown time.
  void KeepForEver(std::shared_ptr<NativeFunction> function);

 private:
  std::unordered_set<std::shared_ptr<NativeFunction>> kept_;
};

}  // namespace hostcall
