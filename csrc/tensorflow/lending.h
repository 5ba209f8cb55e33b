// The memory of compiled programs that callbacks are lent, kept for as long as arrays lie in it.
//
// A callback, or what it has made of an array, may refer to memory after the program has ended. So
// memory is lent only where it can be kept from being freed: the tensors that a program is given,
// which have references, and what it allocates, by an allocator that looks whether it may free.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

// What a program whose callbacks are lent memory seems to run on: `device` with another allocator.
std::unique_ptr<tensorflow::Device> MakeLendingDevice(tensorflow::Device* device);

// A run of such a program. Until it ends, memory can be lent: that of its inputs, and that which is
// allocated by `device`, a lending one.
class LendingRun {
 public:
  LendingRun(tensorflow::OpKernelContext* ctx, tensorflow::Device* device);
  LendingRun(const LendingRun&) = delete;
  LendingRun& operator=(const LendingRun&) = delete;

  // To be called before the context is done with. Not by a destructor: whoever is to call it may
  // have been copied, and a copy may live on for a while.
  void End();

 private:
  tensorflow::OpKernelContext* const ctx_;
  tensorflow::DeviceBase* const device_;
  std::vector<tensorflow::Tensor> inputs_;
};

// Defines the Python side: a capsule that the runtime's set_lender_api takes.
void DefineLending(nanobind::module_& m);

}  // namespace hostcall
