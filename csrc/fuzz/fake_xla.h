// XLA's side of the FFI, as far as the handler needs one: an API table whose errors and futures are
// plain objects that complain about every misuse.
#pragma once

#include <cstdint>
#include <string>

#include "xla/ffi/api/c_api.h"

// What of a program's run a handler can ask for.
struct XLA_FFI_ExecutionContext {
  void* stream;  // null on a CPU
  int64_t run;
};

namespace hostcall::fuzz {

// How a call ended: a code of absl (0 is success) and its message.
struct Outcome {
  int code = XLA_FFI_Error_Code_OK;
  std::string message;
};

// Which XLA is played.
enum class Age {
  kNewest,         // version 0.2 of the FFI
  kTensorFlow220,  // 0.1
};

// What frames from now on are like.
void SetAge(Age age);
Age CurrentAge();

// The entries that the handler has no use for are null.
const XLA_FFI_Api* FakeApi();

// Waits until the future is completed, and destroys it.
Outcome Await(XLA_FFI_Future* future);

// Takes the error over.
Outcome Consume(XLA_FFI_Error* error);

// How many errors and futures there are: none, unless a call is under way or something leaks.
int64_t LiveObjects();

}  // namespace hostcall::fuzz
