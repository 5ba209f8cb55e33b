// The variables of a compiled program, while it calls back into Python.
//
// TensorFlow holds the lock of each variable that a compiled program takes for as long as the
// program runs, so that a callback that reads or assigns one would wait for ever. Programs with
// callbacks therefore run on copies, which share the memory of the variables' values: the program
// takes the values that its variables have when it starts, assigns them when it has ended, and
// holds no lock in between.
#pragma once

#include <memory>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Puts a kernel that does so in the place of `launch`, the kernel that runs the compiled program.
// A program that takes no variables keeps the one that it has.
absl::Status RunOnCopies(tensorflow::FunctionLibraryRuntime* runtime,
                         const std::shared_ptr<const tensorflow::NodeProperties>& props,
                         std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
