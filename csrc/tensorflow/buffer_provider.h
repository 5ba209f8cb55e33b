// Memory of compiled programs that callbacks borrow, kept for as long as arrays lie in it.
//
// A callback, or an object made of its array, may refer to memory after the program has ended. So
// memory is shared only if it can be kept: the tensors that a program is given, which count
// references, and memory that it allocates, by an allocator that checks before it frees.
#pragma once

#include <memory>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// Wraps `device` with another allocator, for programs whose callbacks borrow memory.
std::unique_ptr<tensorflow::Device> MakeProviderDevice(tensorflow::Device* device);

// A run of a program whose callbacks borrow memory. Until it ends, memory can be shared: that of
// its inputs, and that allocated by `device`, which MakeProviderDevice has made.
class BorrowingRun {
 public:
  BorrowingRun(tensorflow::OpKernelContext* ctx, tensorflow::Device* device);
  BorrowingRun(const BorrowingRun&) = delete;
  BorrowingRun& operator=(const BorrowingRun&) = delete;

  // Must be called before the context is destroyed. Not a destructor: the owner of this run may
  // have been copied, and a copy may live on for a while.
  void End();

 private:
  tensorflow::OpKernelContext* const ctx_;
  tensorflow::DeviceBase* const device_;
  std::vector<tensorflow::Tensor> inputs_;
};

}  // namespace hostcall
