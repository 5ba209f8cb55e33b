// Ctrl-C for waits of other extension modules: see interrupts.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hostcall {

struct InterruptsApi {
  // Takes a status code and a text.
  using GiveUp = std::function<void(int, const std::string&)>;

  // Begins a wait of a Python thread that can be given up; returns the number that `end` takes.
  // `give_up` runs on another thread, at most once, without the GIL.
  int64_t (*begin)(unsigned long thread, GiveUp give_up);
  void (*end)(int64_t number);
};

}  // namespace hostcall
