// Memory of compiled programs that callbacks borrow, kept for as long as arrays lie in it.
//
// A callback, or an object made of its array, may refer to memory after the program has ended. So
// memory is shared only if it can be kept: the tensors that a program is given, which count
// references, and memory that it allocates, by an allocator that checks before it frees.
#pragma once

#include <vector>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Returns an allocator for programs whose callbacks borrow memory. It uses `owner`, and frees no
// memory that arrays lie in.
tensorflow::Allocator* BorrowableFrom(tensorflow::Allocator* owner);

// The inputs of a launch, whose memory callbacks may borrow for as long as this lives.
class BorrowableInputs {
 public:
  explicit BorrowableInputs(tensorflow::OpKernelContext* ctx);
  ~BorrowableInputs();
  BorrowableInputs(const BorrowableInputs&) = delete;
  BorrowableInputs& operator=(const BorrowableInputs&) = delete;

 private:
  std::vector<tensorflow::Tensor> inputs_;
};

}  // namespace hostcall
