// One call from a compiled program into Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "arrays.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

struct HostCall {
  int64_t callback = 0;
  bool ordered = true;  // by a token: no other call of the run overlaps it
  std::vector<Buffer> operands;
  std::vector<Buffer> results;
};

// Sets the Python function that tells (status code, message) of an exception.
void SetErrorDescriber(nanobind::object describer);

// Runs the callback on this thread and stores what it returns. Takes the GIL itself; never throws.
// The results' memory is written only when all of them are as declared.
std::optional<xla::ffi::Error> RunHostCall(const HostCall& call) noexcept;

}  // namespace hostcall
