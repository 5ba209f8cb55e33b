// One call from a compiled program into Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arrays.h"
#include "device.h"
#include "failure.h"
#include "registry.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// The program may end before a call of it does: then nothing may touch the program's memory.
struct Abandonment {
  std::mutex mutex;  // held while something does
  bool is_abandoned = false;
};

struct HostCall {
  int64_t id = 0;
  Registry::Use callback;         // null when it is gone
  bool ordered = true;            // by a token: no other call of the run overlaps it
  bool in_program_memory = true;  // and not in copies of a device's
  int64_t run = -1;               // of the program, where it is known (turns.h)
  // Whether it may run on another thread than the one that its program was started on; and then:
  // the one that it came on, where Python knows that.
  bool elsewhere = false;
  unsigned long thread = 0;
  Abandonment* abandonment = nullptr;  // null where the program waits for the call
  Device* device = nullptr;            // whose memory the buffers lie in; null for the host's
  Buffers operands;
  Buffers results;
  // What those of bounded size point to, by their index; empty where there is none.
  std::vector<std::vector<int64_t>> true_dims;  // of the operands
  std::vector<std::vector<int32_t*>> sizes;     // of the results

  // To be called on the thread that the call has come on.
  void RunsElsewhere();

  // Whether arrays of the callback may lie in the program's memory.
  bool shares_memory() const { return in_program_memory && callback->convention().shares_memory; }

  // Whether these are its own for the length of the call alone.
  bool lends() const { return shares_memory() || callback->convention().on_device; }
};

// For a call that goes on elsewhere when the frame which its shapes lie in is gone: lets it have
// copies. To be made on the thread that the call came on.
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

// Sets the Python function that tells (status code, message) of an exception.
void SetErrorDescriber(nanobind::object describer);

// Sets the Python function that returns a function which sees the settings of who has started the
// program: of a function, the callback's id, `run` and `thread`.
void SetBinder(nanobind::object binder);

// Runs the callback on this thread and stores what it returns. Takes the GIL itself; never throws.
// The results' memory is written only when all of them are as declared.
std::optional<xla::ffi::Error> RunHostCall(const HostCall& call) noexcept;

// A failure around the call, with the description of the callback. Takes the GIL; never throws.
xla::ffi::Error ToError(const Failure& failure, const HostCall& call) noexcept;

}  // namespace hostcall
