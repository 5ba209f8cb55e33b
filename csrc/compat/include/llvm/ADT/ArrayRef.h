// TensorFlow 2.19 includes LLVM's header and does not install it. It declares functions with these,
// which we do not call.
#pragma once

namespace llvm {
template <typename T>
class ArrayRef;
}  // namespace llvm
