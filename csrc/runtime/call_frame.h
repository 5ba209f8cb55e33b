// What a call frame of XLA's says, as a HostCall.
#pragma once

#include <cstdint>
#include <utility>

#include "call.h"
#include "frame_attributes.h"
#include "raw_buffers.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

// What a handler takes: its function gets these after what `binding` has already.
template <typename OfCall = Attributes, typename Binding>
auto BindFrame(Binding binding) {
  return std::move(binding).RemainingArgs().RemainingRets().template Attrs<OfCall>();
}

// The call with all buffers of the frame but the tokens. The true sizes are still among them: no
// buffer has been read, as the memory may be a device's.
HostCall ReadFrame(const RawBuffers& args, const RawBuffers& rets, int64_t callback);

// Makes of the call what the attributes say. Reads the true sizes of operands, which must lie in
// the host's memory by now. Throws Failure.
void ReadAttributes(HostCall& call, const Attributes& attributes);

}  // namespace hostcall
