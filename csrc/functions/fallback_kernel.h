// Fallback for a program that XLA refuses to compile.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "wrapped_kernel.h"

namespace hostcall {

// Maker of the kernel that replaces a refused one, given XLA's message. It makes none if the
// message should be an error.
using MakeFallback = LazyKernel<std::string>::Make;

// A function as its kernel launches it.
struct LaunchedFunction {
  std::string name;
  std::string entry;                 // the function that TensorFlow called
  std::vector<std::string> regions;  // the names of their functions
  // True if its program calls back into the host. Otherwise it has no effect before it has
  // succeeded.
  bool calls_host = false;
  // True if it is part of a partitioned function, which extracts the error raised in it.
  bool is_cluster = false;
  // True if it is not compiled for each size of its arguments.
  bool is_bounded = false;
  // Wrapper for a task of the function that continues on another thread.
  std::function<std::function<void()>(std::function<void()>)> elsewhere = nullptr;
};

// Returns an error of hostcall that counts as a refusal by XLA; its other errors are for the user.
// The code marks it, since payloads get lost on the way.
inline absl::Status RefusalOfOurs(std::string_view message) {
  return absl::UnimplementedError(message);
}

// Wraps the kernel that launches a function. If XLA refuses the function, the wrapper runs the
// fallback. No part of the program has run by then, so side effects happen once. `on_success`, if
// not null, is called once, when the program has run.
absl::Status FallBackOnRefusal(const KernelRequest& request, LaunchedFunction function,
                               MakeFallback make, std::function<void()> on_success,
                               KernelPtr* launch);

}  // namespace hostcall
