// What runs in the place of a program that XLA refuses to compile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Makes the kernel that takes the place of a refused one, by XLA's message. None where nothing
// shall: the message is an error, then.
using MakeFallback =
    std::function<absl::Status(const std::string& refusal, std::unique_ptr<tensorflow::OpKernel>*)>;

// A function as its kernel launches it.
struct LaunchedFunction {
  std::string name;
  std::string entry;                 // as TensorFlow knows it
  std::vector<std::string> regions;  // the names of their functions
  // Whether its program calls back into the host. One that does not has no effect before it has
  // succeeded.
  bool calls_host = false;
  // Whether it is a part of a partitioned function, which makes out what was raised in it.
  bool is_cluster = false;
  // Whether it is not compiled for each size of its arguments.
  bool is_bounded = false;
  // What a task of its becomes, which goes on on another thread.
  std::function<std::function<void()>(std::function<void()>)> elsewhere = nullptr;
};

// An error of ours that is taken for a refusal of XLA's; others of ours are the user's. Payloads
// get lost on the way, so that the code tells.
inline absl::Status RefusalOfOurs(std::string_view message) {
  return absl::UnimplementedError(message);
}

// Wraps the kernel that launches a function. Where XLA refuses the function, it runs the fallback.
// Nothing of the program has run by then, so that side effects happen once. `on_success`, if there
// is one, is called once, when the program has run.
absl::Status FallBackOnRefusal(tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               LaunchedFunction function, MakeFallback make,
                               std::function<void()> on_success,
                               std::unique_ptr<tensorflow::OpKernel>* launch);

}  // namespace hostcall
