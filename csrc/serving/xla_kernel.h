// XLA kernels of script ops: an op becomes one custom call.
#pragma once

namespace hostcall::serving {

void RegisterXlaKernels();

}  // namespace hostcall::serving
