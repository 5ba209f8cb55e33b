// Ctrl-C where a program waits for calls on other threads. It waits in XLA, where Python's handlers
// of signals do not run before the calls have ended. So they are given up: the program fails, and
// Python raises KeyboardInterrupt as soon as XLA returns.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>

#include "call.h"
#include "interrupts_api.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall::interrupts {

// A call that can be given up, for as long as this lives.
class Waiting {
 public:
  using GiveUp = std::function<void(const xla::ffi::Error&)>;

  // `give_up` is called on another thread, once at most, without the GIL.
  Waiting(const HostCall& call, GiveUp give_up);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const int64_t number_;
};

// Sets the Python function that chooses. It takes a list of (number, callback id, run, thread), as
// HostCall has these, with the time when each began, and the time when Ctrl-C came, or 0 where it
// was told before. It returns the numbers of the calls to give up, a status code, a text, and
// whether it is to be asked again soon. Times are those of time.monotonic_ns().
void SetChooser(nanobind::object chooser);

const InterruptsApi* GetInterruptsApi();

}  // namespace hostcall::interrupts
