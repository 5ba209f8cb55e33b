// XLA's side of the FFI, as far as the handler needs one: an API table with plain objects for
// errors and futures, which complain about every misuse.
#pragma once

#include <cstdint>
#include <string>

#include "xla/ffi/api/c_api.h"

// The parts of a program's run that a handler can ask for.
struct XLA_FFI_ExecutionContext {
  void* stream;  // null on a CPU
  int64_t run;
};

namespace hostcall::fakes {

// The outcome of a call: a code of absl (0 is success) and its message.
struct Outcome {
  int code = XLA_FFI_Error_Code_OK;
  std::string message;
};

// The version of XLA that is played.
enum class Age {
  kNewest,         // version 0.2 of the FFI
  kTensorFlow220,  // 0.1
};

// Sets the version for later frames.
void SetAge(Age age);
Age CurrentAge();

// Returns the API table. Entries that the handler has no use for are null.
const XLA_FFI_Api* FakeApi();

// Waits until the future is completed, and destroys it.
Outcome Await(XLA_FFI_Future* future);

// Takes the error over, and returns its outcome.
Outcome Consume(XLA_FFI_Error* error);

// Returns the number of errors and futures: 0, unless a call is under way or something leaks.
int64_t LiveObjects();

}  // namespace hostcall::fakes
