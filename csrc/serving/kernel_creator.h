// Kernel creator for functions that are to be compiled.
#pragma once

namespace hostcall::serving {

// Makes TensorFlow's kernels run the functions that XLA refuses, or whose order of calls it would
// lose.
void InstallKernelCreator();

}  // namespace hostcall::serving
