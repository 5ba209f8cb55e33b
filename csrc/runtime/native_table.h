// The native code that compiled programs call, by the ids that they hold.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "call_table.h"
#include "native_code.h"

namespace hostcall {

class NativeTable : public CallTable<NativeFunction, NativeTable> {
 public:
  // Inserts a function and returns its id. For `wanted` see Ids.
  int64_t Insert(std::shared_ptr<NativeFunction> function, int64_t wanted) {
    return Add(std::move(function), wanted);
  }

  // Removes an id. Calls under way keep `owner`. Needs the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // Makes `answer` answer the calls of a function, or the function itself again if it is None.
  // Unknown ids are not an error. Needs the GIL.
  //
  // `answer` gets a list of arrays, the arguments, and a function without parameters, which calls
  // the native code and returns a list of its results. `answer` returns a list of the results, or a
  // tuple of a status code and a message, with which the call fails. If the native code was called,
  // its outcome counts.
  void Answer(int64_t id, nanobind::object answer);

  // Keeps a function for ever: an asynchronous call may use it for an unknown time.
  void KeepForEver(std::shared_ptr<NativeFunction> function);

 private:
  std::unordered_set<std::shared_ptr<NativeFunction>> kept_;
};

}  // namespace hostcall
