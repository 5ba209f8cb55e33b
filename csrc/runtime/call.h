// One call from a compiled program into Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "registry.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

class CudaDevice;

// A guard of the program's memory, which nothing may touch if the program ends before the call.
struct Abandonment {
  std::mutex mutex;  // held while the call touches the program's memory
  bool is_abandoned = false;
};

struct HostCall {
  int64_t id = 0;
  Registry::Use callback;         // null if it is gone
  bool ordered = true;            // by a token: no other call of the run overlaps it
  bool in_program_memory = true;  // false for copies of a device's memory
  int64_t run = -1;               // of the program, if known (turns.h)
  // True if it may run on another thread than its program was started on. `thread` is then the one
  // that it came on, if Python knows that.
  bool elsewhere = false;
  unsigned long thread = 0;
  // Its duration tells on which thread the callback's next call runs. Not measured for the others:
  // to read a clock twice costs as much as a small function.
  bool is_timed = false;
  Abandonment* abandonment = nullptr;  // null if the program waits for the call
  CudaDevice* device = nullptr;        // the buffers lie in its memory; null for the host's
  Buffers operands;
  Buffers results;
  // The sizes that buffers of bounded size point to, by the buffer's index; empty without any.
  std::vector<std::vector<int64_t>> true_dims;  // of the operands
  std::vector<std::vector<int32_t*>> sizes;     // of the results

  // Marks the call as running elsewhere. Call it on the thread that the call came on.
  void RunsElsewhere();

  // Returns whether arrays of the callback may lie in the program's memory.
  bool shares_memory() const { return in_program_memory && callback->convention().shares_memory; }

  // Returns whether the callback has its arrays for the length of the call alone.
  bool lends() const { return shares_memory() || callback->convention().on_device; }
};

// A call that outlives the frame that its shapes lie in: it has copies of them. Make it on the
// thread that the call came on.
class OwningCall {
 public:
  explicit OwningCall(HostCall call);
  const HostCall& call() const { return call_; }
  OwningCall(const OwningCall&) = delete;
  OwningCall& operator=(const OwningCall&) = delete;

 private:
  HostCall call_;
  std::vector<std::vector<int64_t>> dims_;
};

// Sets the Python function from an exception to (status code, message).
void SetErrorDescriber(nanobind::object describer);

// Sets the Python function that wraps a function, so that it sees the settings of the program's
// starter. It takes the function, the callback's id, `run` and `thread`.
void SetBinder(nanobind::object binder);

// Runs the callback on this thread and stores its results. Takes the GIL itself; never throws.
// Writes the results' memory only if all results are as declared.
std::optional<xla::ffi::Error> RunHostCall(const HostCall& call) noexcept;

// Returns a failure around the call, with the callback's description. Takes the GIL; never throws.
xla::ffi::Error ToError(const Failure& failure, const HostCall& call) noexcept;

}  // namespace hostcall
