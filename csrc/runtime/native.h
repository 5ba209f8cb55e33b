// Native code that compiled programs call: no GIL and no Python on the way.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "ids.h"
#include "stats.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// What native code is called with, which lives as long as the call.
struct NativeFrame {
  const XLA_FFI_Api* api = nullptr;
  XLA_FFI_ExecutionContext* context = nullptr;
  std::vector<XLA_FFI_Buffer*> operands;  // without the token
  std::vector<XLA_FFI_Buffer*> results;
};

// What a call comes to: an error, which is null where there is none, or a future.
using NativeOutcome = std::variant<XLA_FFI_Error*, XLA_FFI_Future*>;

// A piece of native code (native_code.h). Python owns what the code lies in; where that is dropped
// while a call runs, the call keeps it.
class NativeFunction {
 public:
  explicit NativeFunction(std::string label) : label_(std::move(label)) {}
  // The last one that has it drops the owner: takes the GIL where there is an owner.
  virtual ~NativeFunction();
  NativeFunction(const NativeFunction&) = delete;
  NativeFunction& operator=(const NativeFunction&) = delete;

  // Throws Failure.
  virtual NativeOutcome Call(const NativeFrame& frame) const = 0;

  // What profiles and statistics call it.
  const std::string& label() const { return label_; }
  Stats& stats() { return stats_; }

  // To be called once, with the GIL.
  void SetOwner(nanobind::object owner) { owner_ = std::move(owner).release().ptr(); }

 private:
  const std::string label_;
  Stats stats_;
  PyObject* owner_ = nullptr;
};

// The table from the ids that compiled programs hold to the code that they call. Ids are never used
// again. Nothing here wants the GIL, but for what says so.
class NativeTable {
 public:
  static NativeTable& Global();

  int64_t Insert(std::shared_ptr<NativeFunction> function);

  // Calls that are under way keep `owner`. With the GIL.
  void Remove(int64_t id, nanobind::object owner);

  // Null when nothing has the id.
  std::shared_ptr<NativeFunction> Find(int64_t id);

  // Those that there are, in the order in which they came.
  std::vector<std::shared_ptr<NativeFunction>> All();

  // One that will never end: an asynchronous call may use it, and nobody says until when.
  void KeepForEver(std::shared_ptr<NativeFunction> function);

 private:
  static std::mutex& Mutex() { return Global().mutex_; }

  std::mutex mutex_;
  int64_t next_id_ = FirstId();
  std::unordered_map<int64_t, std::shared_ptr<NativeFunction>> functions_;
  std::unordered_map<NativeFunction*, std::shared_ptr<NativeFunction>> kept_;
};

}  // namespace hostcall

// Custom call target "hostcall_native", FFI API 0.2, platform Host. Attribute:
//   callback  i64: the id of the function in the table
// Operands and results: the function's own, and perhaps a token. All are of static shape, and of
// types that memory holds as the function wants them.
extern "C" XLA_FFI_Error* HostcallNativeHandler(XLA_FFI_CallFrame* frame);
