// One call from a compiled program into Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "frame.h"
#include "host_api.h"
#include "registry.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

class CudaDevice;

// The attributes of the custom calls of callbacks; see handler.h.
struct Attributes {
  // Throws Failure if some are missing, or others are there.
  explicit Attributes(const XLA_FFI_Attrs& attrs) {
    AttributeReader(attrs)
        .Take("callback", callback)
        .TakeAny("devices", devices)
        .Take("dynamic_operands", dynamic_operands)
        .Take("dynamic_results", dynamic_results)
        .TakeAny("process", process)
        .TakeAny("results", results)
        .TakeAny("shards", shards)
        .Take("sub_byte_operands", sub_byte_operands)
        .Take("sub_byte_results", sub_byte_results)
        .End();
  }

  int64_t callback = 0;
  Pairs dynamic_operands;
  Pairs dynamic_results;
  Pairs sub_byte_operands;
  Pairs sub_byte_results;
  Pairs results;                    // of early calls
  int64_t shards = 0, devices = 0;  // of joint calls
  int64_t process = -1;             // of joint calls in programs for several processes
};

// A guard of the program's memory, which nothing may touch if the program ends before the call.
struct Abandonment {
  std::mutex mutex;  // held while the call touches the program's memory
  bool is_abandoned = false;
};

// A lock on the program's memory. Throws Failure if the call was given up. No user code may run
// under it: Ctrl-C could not give up the call, nor others.
class ProgramMemory {
 public:
  // Takes null if the program waits for the call.
  explicit ProgramMemory(Abandonment* abandonment);

 private:
  std::unique_lock<std::mutex> lock_;
};

struct HostCall {
  // Takes all buffers of the frame but the tokens. The true sizes are still among them: no buffer
  // is read, as the memory may be a device's. Throws Failure.
  HostCall(const XLA_FFI_CallFrame& frame, const Attributes& attributes);

  // Takes the true sizes off the buffers, and the dtypes that the callback sees. The operands must
  // lie in the host's memory by now. Throws Failure.
  void ReadSizes(const Attributes& attributes);

  // Lets the call run on another thread than its program was started on. Call it on the thread that
  // the call came on.
  void RunElsewhere();

  // Does the same, and lets the call outlive the frame: it gets copies of the shapes there.
  void OutliveFrame();

  // Returns that of a callback without special wishes if the callback is gone.
  const Convention& convention() const {
    static constexpr Convention kPlain;
    return callback == nullptr ? kPlain : callback->convention();
  }

  // Returns whether it may run beside others of its run.
  bool is_concurrent() const { return !ordered && convention().concurrent; }

  // Returns whether arrays of the callback may lie in the program's memory.
  bool shares_memory() const { return in_program_memory && convention().shares_memory; }

  // Returns whether the callback has its arrays for the length of the call alone.
  bool lends() const { return shares_memory() || convention().on_device; }

  int64_t id;
  Registry::Use callback;         // null if it is gone
  bool ordered;                   // by a token: no other call of the run overlaps it
  bool in_program_memory = true;  // false for copies of a device's memory
  turns::Run run;
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
  // What buffers point to, if it does not lie in the frame.
  std::vector<std::vector<int64_t>> dims;
  std::vector<std::vector<int32_t*>> sizes;
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
