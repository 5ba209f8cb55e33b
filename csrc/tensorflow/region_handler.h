// Custom call by which a compiled program calls a region.
#pragma once

#include "absl/status/status.h"

namespace hostcall {

// Registers the custom call target "hostcall_region" with TensorFlow's XLA.
//
// Its operands are the address of the launch's RegionScope, the inputs of the region, and
// optionally a token. Its attribute `region` is the index of the region in the scope.
absl::Status RegisterRegionHandler();

}  // namespace hostcall
