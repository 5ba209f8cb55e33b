// XLA's call frame, read into a HostCall.
#pragma once

#include <cstdint>
#include <utility>

#include "call.h"
#include "frame_attributes.h"
#include "raw_buffers.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// Adds the parameters of a handler: its function gets these after the ones in `binding`.
template <typename OfCall = Attributes, typename Binding>
auto BindFrame(Binding binding) {
  return std::move(binding).RemainingArgs().RemainingRets().template Attrs<OfCall>();
}

// Returns the call with all buffers of the frame but the tokens. The true sizes are still among
// them: no buffer has been read, as the memory may be a device's.
HostCall ReadFrame(const RawBuffers& args, const RawBuffers& rets, int64_t callback);

// Applies the attributes to the call. Reads the true sizes of operands, which must lie in the
// host's memory by now. Throws Failure.
void ReadAttributes(HostCall& call, const Attributes& attributes);

}  // namespace hostcall
