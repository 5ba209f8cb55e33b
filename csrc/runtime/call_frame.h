// XLA's call frame, read into a HostCall.
#pragma once

#include <cstdint>

#include "call.h"
#include "frame.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// The attributes of the custom calls of callbacks; see handler.h.
struct Attributes {
  // Throws Failure if some are missing, or others are there.
  explicit Attributes(const XLA_FFI_Attrs& attrs) {
    AttributeReader(attrs)
        .Take("callback", callback)
        .TakeAny("devices", devices)
        .Take("dynamic_operands", dynamic_operands)
        .Take("dynamic_results", dynamic_results)
        .TakeAny("process", process)
        .TakeAny("results", results)
        .TakeAny("shards", shards)
        .Take("sub_byte_operands", sub_byte_operands)
        .Take("sub_byte_results", sub_byte_results)
        .End();
  }

  int64_t callback = 0;
  Pairs dynamic_operands;
  Pairs dynamic_results;
  Pairs sub_byte_operands;
  Pairs sub_byte_results;
  Pairs results;                    // of early calls
  int64_t shards = 0, devices = 0;  // of joint calls
  int64_t process = -1;             // of joint calls in programs for several processes
};

// Returns the call with all buffers of the frame but the tokens. The true sizes are still among
// them: no buffer has been read, as the memory may be a device's.
HostCall ReadFrame(const XLA_FFI_CallFrame& frame, int64_t callback);

// Applies the attributes to the call. Reads the true sizes of operands, which must lie in the
// host's memory by now. Throws Failure.
void ReadAttributes(HostCall& call, const Attributes& attributes);

}  // namespace hostcall
