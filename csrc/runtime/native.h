// Native code that compiled programs call: no GIL and no Python on the way.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ids.h"
#include "native_function.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// The table from the ids that compiled programs hold to the code that they call. Ids are never used
// again. Nothing here wants the GIL, but for what says so.
class NativeTable {
 public:
  static NativeTable& Global();

  // For `wanted` see Ids.
  int64_t Insert(std::shared_ptr<NativeFunction> function, int64_t wanted = 0);

  // Calls that are under way keep `owner`. With the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // Null when nothing has the id.
  std::shared_ptr<NativeFunction> Find(int64_t id);

  // Those that there are, in the order in which they came.
  std::vector<std::shared_ptr<NativeFunction>> All();

  // Has `answer` answer the calls of a function (answered_function.h), or nobody any more where it
  // is None. Unknown ids are no error. With the GIL.
  void Answer(int64_t id, nanobind::object answer);

  // One that will never end: an asynchronous call may use it, and nobody says until when.
  void KeepForEver(std::shared_ptr<NativeFunction> function);

 private:
  static std::mutex& Mutex() { return Global().mutex_; }

  std::mutex mutex_;
  Ids numbers_;
  std::unordered_map<int64_t, std::shared_ptr<NativeFunction>> functions_;
  std::unordered_map<NativeFunction*, std::shared_ptr<NativeFunction>> kept_;
};

// Defines the Python side of native code.
void DefineNative(nanobind::module_& m);

}  // namespace hostcall

// Custom call target "hostcall_native", FFI API 0.2, platform Host. Attribute:
//   callback  i64: the id of the function in the table
// Operands and results: the function's own, and perhaps a token. All are of static shape, and of
// types that memory holds as the function wants them.
extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame);
