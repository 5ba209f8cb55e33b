// Check of the results of a conditional's branches while XLA compiles them.
//
// If their shapes differ, XLA looks for the largest of each result. A token has no shape, so the
// process ends. Tracing leaves most sizes open, so that only this check knows them.
//
// Including XLA's builder makes this file slow to compile (40 s): keep unrelated code out.
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "functions/fallback_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

// `conditional` is the name of a node. `key` identifies one conditional of the program, which has
// this many `branches`.
REGISTER_OP("HostcallBranchResults")
    .Input("inputs: T")
    .Output("outputs: T")
    .Attr("T: list(type) >= 1")
    .Attr("conditional: string")
    .Attr("key: string")
    .Attr("branches: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

// Results of one conditional's branches in one compilation. XLA compiles the branches in turn, and
// all of them again if a function with a conditional is called for other shapes.
class Branches : public tensorflow::ResourceBase {
 public:
  // Returns the shapes of an earlier branch if those of the next branch differ, else none.
  std::vector<xla::Shape> DifferFrom(std::vector<xla::Shape> shapes, int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (seen_++ % count == 0) {
      first_ = std::move(shapes);
      return {};
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (!xla::Shape::Equal().IgnoreLayout()(shapes[i], first_[i])) return first_;
    }
    return {};
  }

  std::string DebugString() const override { return "the branches of a conditional"; }

 private:
  std::mutex mutex_;
  int64_t seen_ = 0;
  std::vector<xla::Shape> first_;
};

std::string ToText(const std::vector<xla::Shape>& shapes) {
  return absl::StrJoin(shapes, ", ", [](std::string* text, const xla::Shape& shape) {
    absl::StrAppend(text, xla::ShapeUtil::HumanString(shape));
  });
}

class BranchResultsKernel : public tensorflow::XlaOpKernel {
 public:
  explicit BranchResultsKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("conditional", &conditional_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("branches", &branches_));
  }

  void Compile(tensorflow::XlaOpKernelContext* ctx) override {
    std::vector<xla::Shape> shapes;
    for (int i = 0; i < num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      OP_REQUIRES_OK(ctx, shape.status());
      shapes.push_back(*std::move(shape));
      ctx->SetOutput(i, ctx->Input(i));
    }
    // The resource lives as long as the compilation.
    tensorflow::ResourceMgr* manager = ctx->op_kernel_context()->resource_manager();
    Branches* branches = nullptr;
    OP_REQUIRES_OK(ctx, manager->LookupOrCreate<Branches>(  //
                            "hostcall", key_, &branches, [](Branches** created) {
                              *created = new Branches();
                              return absl::OkStatus();
                            }));
    const tensorflow::core::ScopedUnref unref(branches);
    const std::vector<xla::Shape> others = branches->DifferFrom(shapes, branches_);
    OP_REQUIRES(
        ctx, others.empty(),
        RefusalOfOurs(absl::StrCat(
            "hostcall: the branches of node `", conditional_, "` return different shapes (",
            ToText(others), " and ", ToText(shapes),
            "), and hold calls with side effects. XLA ends the process for that. Let the branches "
            "return equal shapes, call with stateful=False, or let the function be partitioned: "
            "with route='auto'.")));
  }

 private:
  std::string conditional_;
  std::string key_;
  int64_t branches_ = 1;
};

#define HOSTCALL_REGISTER(device)                                                   \
  REGISTER_KERNEL_BUILDER(Name("HostcallBranchResults").Device(tensorflow::device), \
                          BranchResultsKernel)
HOSTCALL_REGISTER(DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER(DEVICE_GPU_XLA_JIT);
#undef HOSTCALL_REGISTER

}  // namespace
}  // namespace hostcall
