// As ArrayRef.h. Members of a class that we neither make nor take.
#pragma once

#include <vector>

namespace llvm {
template <typename T>
class SmallVector : public std::vector<T> {
 public:
  operator ArrayRef<T>() const;
};
}  // namespace llvm
