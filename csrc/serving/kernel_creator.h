// What becomes of functions that are to be compiled.
#pragma once

namespace hostcall::serving {

// Has TensorFlow's kernels run the functions that XLA refuses, or in which it would lose the order
// of calls.
void InstallKernelCreator();

}  // namespace hostcall::serving
