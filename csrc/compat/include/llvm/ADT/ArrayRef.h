// A stand-in: TensorFlow 2.19 includes LLVM's header and does not install it. It declares functions
// with these types, which we do not call.
#pragma once

#include <cstddef>

namespace llvm {
template <typename T>
struct ArrayRef {
  const T* data;
  size_t size;
};
}  // namespace llvm
