// Variables of a compiled program, while it calls back into Python.
//
// TensorFlow holds the lock of each variable that a compiled program takes for as long as the
// program runs, so that a callback that reads or assigns one would wait for ever. Programs with
// callbacks therefore run on copies, which share the memory of the variables' values. A program
// takes the values of its variables when it starts, assigns them when it has ended, and holds no
// lock in between.
#pragma once

#include <memory>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Replaces `launch`, the kernel that runs the compiled program, with one that runs it on copies. A
// program that takes no variables keeps its kernel.
absl::Status RunOnCopies(tensorflow::FunctionLibraryRuntime* runtime,
                         const std::shared_ptr<const tensorflow::NodeProperties>& props,
                         std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
