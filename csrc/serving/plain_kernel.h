// The kernels of script ops on the CPU, outside of compiled programs.
#pragma once

namespace hostcall::serving {

void RegisterPlainKernels();

}  // namespace hostcall::serving
