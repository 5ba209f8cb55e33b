// Creation of the kernels of must-compile functions.
#pragma once

namespace hostcall {

// Puts hostcall's kernel creator in the place of TensorFlow's, to which it delegates.
void InstallKernelCreator();

}  // namespace hostcall
