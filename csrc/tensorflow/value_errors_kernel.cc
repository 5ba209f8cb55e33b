// Ops that find values for which TensorFlow's kernels raise errors, and raise these errors
// (_compiler/semantics/).
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "node_tokens.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

constexpr char kRaiseTarget[] = "hostcall_raise";

// `failure` is the number of the error to raise, from 1 on, or 0. Each of the `errors` is a number,
// a status code and a message: "1:3:text".
REGISTER_OP("HostcallRaise")
    .Input("failure: int32")
    .Attr("errors: list(string)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

// Tells whether any of the values is what `kind` says (runtime/handler.h).
REGISTER_OP("HostcallAny")
    .Input("values: T")
    .Input("limit: T")
    .Output("any: bool")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Attr("kind: {'outside', 'equal', 'at_least'}")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

class AnyXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit AnyXlaKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("kind", &kind_));
  }

  void Compile(tensorflow::XlaOpKernelContext* ctx) override {
    absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(0);
    OP_REQUIRES_OK(ctx, shape.status());
    ctx->SetOutput(0, IsForCall(*shape) ? Call(ctx) : Reduction(ctx, *shape));
  }

 private:
  // XLA makes three kernels of a reduction of more than 32 elements, and compiles each for 10 ms
  // and more. A call takes 110 ns; the kernels take 50 ns for 40 elements and 250 for 1000.
  static constexpr int64_t kMany = 33;

  static bool IsForCall(const xla::Shape& shape) {
    const xla::PrimitiveType type = shape.element_type();
    return (type == xla::S32 || type == xla::S64) && shape.is_static() &&
           xla::ShapeUtil::ElementsIn(shape) >= kMany;
  }

  xla::XlaOp Call(tensorflow::XlaOpKernelContext* ctx) const {
    return xla::CustomCall(
        ctx->builder(), "hostcall_any", {ctx->Input(0), ctx->Input(1)},
        xla::ShapeUtil::MakeScalarShape(xla::PRED), absl::StrCat("{kind = \"", kind_, "\"}"),
        /*has_side_effect=*/false, /*output_operand_aliasing=*/{}, /*literal=*/nullptr,
        xla::CustomCallSchedule::SCHEDULE_NONE, xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
  }

  xla::XlaOp Reduction(tensorflow::XlaOpKernelContext* ctx, const xla::Shape& shape) const {
    xla::XlaOp values = ctx->Input(0), limit = ctx->Input(1);
    if (kind_ == "outside") {
      const xla::PrimitiveType type = Unsigned(shape.element_type());
      values = xla::ConvertElementType(values, type);
      limit = xla::ConvertElementType(limit, type);
    }
    const xla::XlaOp found = kind_ == "equal" ? xla::Eq(values, limit) : xla::Ge(values, limit);
    const xla::XlaComputation any = xla::CreateScalarOrComputation(xla::PRED, ctx->builder());
    return xla::ReduceAll(found, xla::ConstantR0<bool>(ctx->builder(), false), any);
  }

  static xla::PrimitiveType Unsigned(xla::PrimitiveType type) {
    return type == xla::S8    ? xla::U8
           : type == xla::S16 ? xla::U16
           : type == xla::S32 ? xla::U32
           : type == xla::S64 ? xla::U64
                              : type;
  }

  std::string kind_;
};

REGISTER_KERNEL_BUILDER(Name("HostcallAny").Device(tensorflow::DEVICE_CPU_XLA_JIT), AnyXlaKernel);

// Returns an attribute of MLIR with the text as its value.
std::string TextAttribute(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c)) && c != '"' && c != '\\') {
      quoted.push_back(c);
    } else {
      absl::StrAppendFormat(&quoted, "\\%02X", static_cast<unsigned char>(c));
    }
  }
  return absl::StrCat("{errors = \"", quoted, "\"}");
}

class RaiseXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit RaiseXlaKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    std::vector<std::string> errors;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("errors", &errors));
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
    attribute_ = TextAttribute(absl::StrJoin(errors, "\x1e"));
  }

  void Compile(tensorflow::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Emit(ctx)); }

 private:
  absl::Status Emit(tensorflow::XlaOpKernelContext* ctx) {
    std::vector<xla::XlaOp> operands = {ctx->Input(0)};
    std::vector<xla::Shape> results;
    if (!tokens_.empty()) {
      TF_ASSIGN_OR_RETURN(operands.emplace_back(), tokens_.Before(ctx));
      results.push_back(xla::ShapeUtil::MakeTokenShape());
    }
    const xla::XlaOp call = xla::CustomCall(
        ctx->builder(), kRaiseTarget, operands, xla::ShapeUtil::MakeTupleShape(results), attribute_,
        /*has_side_effect=*/true, /*output_operand_aliasing=*/{}, /*literal=*/nullptr,
        xla::CustomCallSchedule::SCHEDULE_NONE, xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
    if (tokens_.empty()) return absl::OkStatus();
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, 0));
  }

  NodeTokens tokens_;
  std::string attribute_;
};

REGISTER_KERNEL_BUILDER(Name("HostcallRaise").Device(tensorflow::DEVICE_CPU_XLA_JIT),
                        RaiseXlaKernel);

}  // namespace
}  // namespace hostcall
