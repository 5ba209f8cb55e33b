// Check that a program would keep the order of a function's calls.
#pragma once

#include <string>

#include "tensorflow/core/framework/function.h"

namespace hostcall::serving {

// Returns why a program would not keep the order, or "". The kernels chain the calls of one
// computation. Calls in a nested function, a loop or a branch would not be in that chain, and XLA
// omits conditions of loops whose iterations it can count.
std::string DisorderIn(const std::string& function,
                       const tensorflow::FunctionLibraryDefinition& library);

}  // namespace hostcall::serving
