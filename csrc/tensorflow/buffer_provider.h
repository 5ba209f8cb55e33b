// The memory of compiled programs that callbacks borrow, kept for as long as arrays lie in it.
//
// A callback, or what it has made of an array, may refer to memory after the program has ended. So
// memory is shared only where it can be kept from being freed: the tensors that a program is given,
// which have references, and what it allocates, by an allocator that looks whether it may free.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// What a program whose callbacks borrow memory seems to run on: `device` with another allocator.
std::unique_ptr<tensorflow::Device> MakeProviderDevice(tensorflow::Device* device);

// A run of such a program. Until it ends, memory can be shared: that of its inputs, and that which
// is allocated by `device`, one of these.
class BorrowingRun {
 public:
  BorrowingRun(tensorflow::OpKernelContext* ctx, tensorflow::Device* device);
  BorrowingRun(const BorrowingRun&) = delete;
  BorrowingRun& operator=(const BorrowingRun&) = delete;

  // To be called before the context is done with. Not by a destructor: whoever is to call it may
  // have been copied, and a copy may live on for a while.
  void End();

 private:
  tensorflow::OpKernelContext* const ctx_;
  tensorflow::DeviceBase* const device_;
  std::vector<tensorflow::Tensor> inputs_;
};

// Defines the Python side: a capsule that the runtime's set_buffer_provider_api takes.
void DefineBufferProvider(nanobind::module_& m);

}  // namespace hostcall
