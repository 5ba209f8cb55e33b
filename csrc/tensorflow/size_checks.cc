// Ops that pass values on, and that XLA compiles to nothing. Once XLA knows all shapes, they refuse
// values that it would get wrong silently. _compiler/bounded/analysis.py adds them.
//
// Including XLA's builder makes this file slow to compile (40 s): keep unrelated code out.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "functions/fallback_kernel.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using tensorflow::shape_inference::InferenceContext;

// Results of the node `conditional`. `bounded` holds the (result, dimension)s that may be bounded.
REGISTER_OP("HostcallKnownSizes")
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 1")
    .Attr("conditional: string")
    .Attr("bounded: list(int) = []")
    .SetShapeFn([](InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

// The list that the node `user` reads elements of type `dtype` from, or writes them to. XLA itself
// refuses elements of another shape.
REGISTER_OP("HostcallList")
    .Input("list: variant")
    .Output("output: variant")
    .Attr("dtype: type")
    .Attr("user: string")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    });

// Kernel of both ops if TensorFlow's kernels run a function.
class PassKernel : public tensorflow::OpKernel {
 public:
  explicit PassKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {}
  void Compute(tensorflow::OpKernelContext* ctx) override {
    for (int i = 0; i < num_outputs(); ++i) ctx->set_output(i, ctx->input(i));
  }
  bool IsExpensive() override { return false; }
};

class KnownSizesKernel : public tensorflow::XlaOpKernel {
 public:
  explicit KnownSizesKernel(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("conditional", &conditional_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("bounded", &bounded_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    for (int i = 0; i < num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      OP_REQUIRES_OK(ctx, shape.status());
      for (size_t dim = 0; dim < shape->dimensions().size(); ++dim) {
        OP_REQUIRES(ctx, !shape->is_dynamic_dimension(dim) || MayBeBounded(i, dim),
                    RefusalOfOurs(absl::StrCat(
                        "hostcall: the branches of node `", conditional_,
                        "` return different sizes, which XLA may get wrong: it makes ",
                        xla::ShapeUtil::HumanString(*shape),
                        " of them. Let the branches return "
                        "equal shapes, or let the function be partitioned: with route='auto'.")));
      }
      ctx->SetOutput(i, ctx->Input(i));
    }
  }

 private:
  bool MayBeBounded(int64_t result, int64_t dim) const {
    for (size_t i = 0; i + 1 < bounded_.size(); i += 2) {
      if (bounded_[i] == result && bounded_[i + 1] == dim) return true;
    }
    return false;
  }

  std::string conditional_;
  std::vector<int64_t> bounded_;
};

class ListKernel : public tensorflow::XlaOpKernel {
 public:
  explicit ListKernel(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("user", &user_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    absl::StatusOr<xla::Shape> list = ctx->builder()->GetShape(ctx->Input(0));
    OP_REQUIRES_OK(ctx, list.status());
    // XLA has an array for a list without known elements, and a longer tuple for nested lists.
    if (list->IsTuple() && list->tuple_shapes().size() == 2) {
      OP_REQUIRES_OK(ctx, CheckType(list->tuple_shapes(0)));
    }
    ctx->SetTensorListOutput(0, ctx->Input(0));
  }

 private:
  absl::Status CheckType(const xla::Shape& buffer) const {
    xla::PrimitiveType type;
    absl::Status known = tensorflow::DataTypeToPrimitiveType(dtype_, &type);
    if (!known.ok() || type == buffer.element_type()) return known;
    return RefusalOfOurs(absl::StrCat("hostcall: node `", user_, "` takes elements of dtype ",
                                      tensorflow::DataTypeString(dtype_),
                                      " for those of a list that has others"));
  }

  tensorflow::DataType dtype_;
  std::string user_;
};

REGISTER_KERNEL_BUILDER(Name("HostcallKnownSizes").Device(tensorflow::DEVICE_DEFAULT), PassKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallList").Device(tensorflow::DEVICE_DEFAULT), PassKernel);

#define HOSTCALL_REGISTER(device)                                                \
  REGISTER_KERNEL_BUILDER(Name("HostcallKnownSizes").Device(tensorflow::device), \
                          KnownSizesKernel);                                     \
  REGISTER_KERNEL_BUILDER(Name("HostcallList").Device(tensorflow::device), ListKernel)
HOSTCALL_REGISTER(DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER(DEVICE_GPU_XLA_JIT);
#undef HOSTCALL_REGISTER

}  // namespace
}  // namespace hostcall
