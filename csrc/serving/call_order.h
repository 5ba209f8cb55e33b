// Whether the calls of a function would keep their order in a program.
#pragma once

#include <string>

#include "tensorflow/core/framework/function.h"

namespace hostcall::serving {

// Why they would not, or "". The kernels chain the calls of one computation. What a nested
// function, a loop or a branch calls would not be in that chain, and XLA leaves out conditions of
// loops whose iterations it can count.
std::string DisorderIn(const std::string& function,
                       const tensorflow::FunctionLibraryDefinition& library);

}  // namespace hostcall::serving
