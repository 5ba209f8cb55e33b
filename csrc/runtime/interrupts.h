// Ctrl-C while a program waits for calls on other threads. It waits in XLA, where Python's signal
// handlers do not run before the calls have ended. So the calls are given up: the program fails,
// and Python raises KeyboardInterrupt as soon as XLA returns.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>

#include "call.h"
#include "host_api.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall::interrupts {

// A call that can be given up while this object lives.
class Waiting {
 public:
  using GiveUp = std::function<void(const xla::ffi::Error&)>;

  // Registers the call. `give_up` runs on another thread, at most once, without the GIL.
  Waiting(const HostCall& call, GiveUp give_up);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const int64_t number_;
};

// Sets the Python function that chooses the calls to give up. It takes a list of (number, callback
// id, run, thread, time of begin), as in HostCall, and the time when Ctrl-C came, or 0 if it was
// told that before. It returns the numbers of the calls to give up, a status code, a text, and true
// if it wants to be asked again soon. Times are those of time.monotonic_ns().
void SetChooser(nanobind::object chooser);

// Begin and end a wait of another module: see RuntimeApi.
int64_t BeginWait(unsigned long thread, RuntimeApi::GiveUp give_up);
void EndWait(int64_t number);

}  // namespace hostcall::interrupts
