#include "kept_values.h"

#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelContext;

// Launch of a program that may raise an error of values at its end. XLA would write a variable's
// new value into the memory of the old one, unless that has another owner.
class LaunchKeepingValues : public AsyncOpKernel {
 public:
  LaunchKeepingValues(tensorflow::OpKernelConstruction* construction, std::vector<int> resources,
                      KernelPtr launch)
      : AsyncOpKernel(construction), resources_(std::move(resources)), launch_(std::move(launch)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    std::vector<tensorflow::Tensor> values;
    for (const int i : resources_) {
      tensorflow::core::RefCountPtr<tensorflow::Var> variable;
      const auto& handle = ctx->input(i).flat<tensorflow::ResourceHandle>()(0);
      if (!tensorflow::LookupResource(ctx, handle, &variable).ok()) continue;
      const tensorflow::tf_shared_lock lock(*variable->mu());
      values.push_back(*variable->tensor());
    }
    ComputeHolding(std::move(values), launch_->AsAsync(), ctx, [](const auto&) {}, std::move(done));
  }

 private:
  const std::vector<int> resources_;  // inputs that are variables
  const KernelPtr launch_;
};

}  // namespace

absl::Status KeepValues(const KernelRequest& request, KernelPtr* launch) {
  return WrapForVariables<LaunchKeepingValues>(request, launch);
}

}  // namespace hostcall
