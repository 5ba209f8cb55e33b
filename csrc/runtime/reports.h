// Reports of errors, which programs send to other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "arrays.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// The memory of a report.
struct Report {
  uint8_t* data;
  size_t size;
};

// Returns the memory of a buffer in the host's memory. Throws Failure if it cannot hold a report.
Report ReportIn(const Buffer& buffer);

// Writes an error of this process, `process`, or zeros if there is none. Of a long message the
// middle is left out: its end has the number of the exception.
void Write(const Report& report, const std::optional<xla::ffi::Error>& error, int64_t process);

// Returns the error of a report, if any. The exceptions of other processes have no number here.
std::optional<xla::ffi::Error> Read(const Report& report, int64_t process);

}  // namespace hostcall
