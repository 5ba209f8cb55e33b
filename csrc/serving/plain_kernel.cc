#include "plain_kernel.h"

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

  // A function that cannot be called is an error of the call: a model is more than that function.
  void Compute(tensorflow::OpKernelContext* ctx) override {
    const absl::StatusOr<const Callee*> callee = FindCallee(token_);
    OP_REQUIRES_OK(ctx, callee.status());
    OP_REQUIRES_OK(ctx, (*callee)->native != nullptr ? CallNative(**callee, ctx)
                                                     : CallWorkerWith(**callee, ctx));
  }

 private:
  std::string token_;
};

}  // namespace

void RegisterPlainKernels() {
  using tensorflow::DEVICE_CPU;
  REGISTER_KERNEL_BUILDER(Name("PyFunc").Device(DEVICE_CPU), PlainKernel);
  REGISTER_KERNEL_BUILDER(Name("PyFuncStateless").Device(DEVICE_CPU), PlainKernel);
  REGISTER_KERNEL_BUILDER(Name("EagerPyFunc").Device(DEVICE_CPU), PlainKernel);
}

}  // namespace hostcall::serving
