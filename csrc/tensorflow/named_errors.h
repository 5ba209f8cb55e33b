// Which node of a function has failed, where TensorFlow's executor does not say.
//
// The executor that runs a function's nodes one after the other returns the error of a kernel as it
// is. So the kernels of such nodes note their names on the thread, for the call that ends there.
#pragma once

#include <memory>
#include <string>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Whether a node's kernel is to note that it has failed.
bool NotesErrors(const tensorflow::NodeDef& node);

// Makes the kernel of such a node.
absl::Status CreateNotingKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                std::unique_ptr<tensorflow::OpKernel>* kernel);

// Forgets what this thread has noted.
void ForgetFailedNode();

// The error of a call that this thread has made, with the name of the node that has failed.
absl::Status WithFailedNode(const absl::Status& status);

}  // namespace hostcall
