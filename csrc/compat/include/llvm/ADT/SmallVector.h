// A stand-in like ArrayRef.h, for members of a class that we neither make nor take.
#pragma once

#include <vector>

#include "llvm/ADT/ArrayRef.h"

namespace llvm {
template <typename T>
struct SmallVector : std::vector<T> {
  operator ArrayRef<T>() const { return {this->data(), this->size()}; }
};
}  // namespace llvm
