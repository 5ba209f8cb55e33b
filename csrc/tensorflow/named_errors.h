// Names of failed nodes, for errors in which TensorFlow's executor leaves them out.
//
// The executor that runs a function's nodes one after the other returns a kernel's error as it is.
// So the kernels of these nodes note their names on the thread, for the call that ends there.
#pragma once

#include <memory>
#include <string>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Returns true if a node's kernel must note its failure.
bool NotesErrors(const tensorflow::NodeDef& node);

// Creates the kernel of that node.
absl::Status CreateNotingKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                std::unique_ptr<tensorflow::OpKernel>* kernel);

// Forgets the node that this thread has noted.
void ForgetFailedNode();

// Adds the name of the failed node to the error of a call that this thread has made.
absl::Status WithFailedNode(const absl::Status& status);

}  // namespace hostcall
