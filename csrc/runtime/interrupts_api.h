// Ctrl-C for what other extension modules wait for: see interrupts.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hostcall {

struct InterruptsApi {
  // Takes a status code and a text.
  using GiveUp = std::function<void(int, const std::string&)>;

  // A thread of Python's waits for something that can be given up, until `end` gets the number that
  // this returns. `give_up` is called on another thread, once at most, without the GIL.
  int64_t (*begin)(unsigned long thread, GiveUp give_up);
  void (*end)(int64_t number);
};

}  // namespace hostcall
