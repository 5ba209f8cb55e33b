// Pointers that extension modules pass each other through Python, in capsules that name the type.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <string>

namespace hostcall::capsules {

inline constexpr char kBufferHold[] = "hostcall.BufferHold";
inline constexpr char kHostApi[] = "hostcall.HostApi";
inline constexpr char kRuntimeApi[] = "hostcall.RuntimeApi";
// The name that XLA's own registration takes.
inline constexpr char kHandler[] = "xla._CUSTOM_CALL_TARGET";

// Returns the pointer in a capsule of this name. Throws TypeError for a capsule of another name.
inline void* Get(const nanobind::capsule& capsule, const char* name) {
  const char* actual = capsule.name();
  if (actual == nullptr || std::strcmp(actual, name) != 0) {
    const std::string known = actual == nullptr ? "without a name" : std::string("named ") + actual;
    throw nanobind::type_error(("hostcall: wants a capsule named " + std::string(name) +
                                ", and was given one " + known +
                                ". The extension modules may come from different builds: install "
                                "hostcall again.")
                                   .c_str());
  }
  return capsule.data(name);
}

}  // namespace hostcall::capsules
