#include "plain_kernel.h"

#include <atomic>
#include <string>

#include "callee.h"
#include "native_call.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "worker_tensors.h"

namespace hostcall::serving {
namespace {

class PlainKernel : public tensorflow::OpKernel {
 public:
  explicit PlainKernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("token", &token_));
  }

  // Fails the call, not the model, if the function cannot be called: a model has other functions.
  void Compute(tensorflow::OpKernelContext* ctx) override {
    const absl::StatusOr<const Callee*> callee = Found();
    OP_REQUIRES_OK(ctx, callee.status());
    OP_REQUIRES_OK(ctx, (*callee)->native != nullptr ? CallNative(**callee, ctx)
                                                     : CallWorkerWith(**callee, ctx));
  }

 private:
  absl::StatusOr<const Callee*> Found() {
    if (const Callee* known = callee_.load(std::memory_order_acquire)) return known;
    const absl::StatusOr<const Callee*> callee = FindCallee(token_);
    if (callee.ok()) callee_.store(*callee, std::memory_order_release);
    return callee;
  }

  std::string token_;
  std::atomic<const Callee*> callee_{nullptr};
};

}  // namespace

void RegisterPlainKernels() {
  using tensorflow::DEVICE_CPU;
  REGISTER_KERNEL_BUILDER(Name("PyFunc").Device(DEVICE_CPU), PlainKernel);
  REGISTER_KERNEL_BUILDER(Name("PyFuncStateless").Device(DEVICE_CPU), PlainKernel);
  REGISTER_KERNEL_BUILDER(Name("EagerPyFunc").Device(DEVICE_CPU), PlainKernel);
}

}  // namespace hostcall::serving
