#include "named_errors.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "functions/call_kernel.h"
#include "functions/reachable.h"
#include "functions/wrapped_kernel.h"
#include "hostcall_attributes.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/errors.h"

namespace hostcall {
namespace {

thread_local std::string failed_node;  // as TensorFlow writes it

class NotingKernel : public tensorflow::OpKernel {
 public:
  NotingKernel(tensorflow::OpKernelConstruction* construction,
               std::unique_ptr<tensorflow::OpKernel> kernel)
      : OpKernel(construction), kernel_(std::move(kernel)) {}

  void Compute(tensorflow::OpKernelContext* ctx) override {
    kernel_->Compute(ctx);
    if (!ctx->status().ok()) failed_node = tensorflow::FormatNodeDefForError(kernel_->def());
  }

 private:
  const std::unique_ptr<tensorflow::OpKernel> kernel_;
};

}  // namespace

bool NotesErrors(const tensorflow::NodeDef& node) {
  return HasFlag(node, attributes::NOTES_ERRORS);
}

absl::Status CreateNotingKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                std::unique_ptr<tensorflow::OpKernel>* kernel) {
  absl::Status created = CreateKernelFor(tensorflow::DEVICE_CPU, runtime, props, kernel);
  if (!created.ok() || (*kernel)->AsAsync() != nullptr) return created;
  return WrapKernel<NotingKernel>(runtime, props, kernel);
}

void ForgetFailedNode() { failed_node.clear(); }

absl::Status WithFailedNode(const absl::Status& status) {
  const std::string node = std::exchange(failed_node, "");
  if (node.empty() || absl::StrContains(status.message(), "{{node ")) return status;
  return tensorflow::errors::CreateWithUpdatedMessage(
      status, absl::StrCat(status.message(), "\n\t [[", node, "]]"));
}

}  // namespace hostcall
