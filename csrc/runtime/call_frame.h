// XLA's call frame, read into a HostCall.
#pragma once

#include <cstdint>

#include "call.h"
#include "frame_attributes.h"
#include "xla/ffi/api/c_api.h"

namespace hostcall {

// Returns the call with all buffers of the frame but the tokens. The true sizes are still among
// them: no buffer has been read, as the memory may be a device's.
HostCall ReadFrame(const XLA_FFI_CallFrame& frame, int64_t callback);

// Applies the attributes to the call. Reads the true sizes of operands, which must lie in the
// host's memory by now. Throws Failure.
void ReadAttributes(HostCall& call, const Attributes& attributes);

}  // namespace hostcall
