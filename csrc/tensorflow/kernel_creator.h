// Where TensorFlow creates the kernel of a must-compile function.
#pragma once

namespace hostcall {

// Puts hostcall's kernel creator in the place of TensorFlow's, to which it delegates.
void InstallKernelCreator();

}  // namespace hostcall
