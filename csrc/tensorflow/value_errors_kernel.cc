// Ops that find values for which TensorFlow's kernels raise errors, and raise these errors
// (_compiler/semantics/).
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "functions/typed_call.h"
#include "node_tokens.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

constexpr char kRaiseTarget[] = "hostcall_raise";

// Raises the error of the first of the `failures`, if any. Each is the number of an error, from 1
// on, or 0, or is true for one error. Each of the `errors` is a number, a status code and a
// message: "1:3:text". Those of the booleans come first, in their order.
REGISTER_OP("HostcallRaise")
    .Input("failures: T")
    .Attr("T: list({bool, int32}) >= 1")
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

// Tells whether `x` is true, unless `y` is false, which XLA knows as a rule when it compiles. Then
// the result is one of them: XLA folds no call, and so compiles a kernel that joins it to another.
REGISTER_OP("HostcallAnd")
    .Input("x: bool")
    .Input("y: bool")
    .Output("z: bool")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// Returns a boolean operand of an op if XLA knows it when it compiles.
std::optional<bool> Known(tensorflow::XlaOpKernelContext* ctx, int input) {
  const absl::StatusOr<tensorflow::Tensor> value = ctx->ConstantInputTensor(input);
  return value.ok() ? std::optional(value->scalar<bool>()()) : std::nullopt;
}

class AndXlaKernel : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(tensorflow::XlaOpKernelContext* ctx) override {
    const std::optional<bool> known = Known(ctx, 1);
    if (!known.has_value()) {
      ctx->SetOutput(0, xla::And(ctx->Input(0), ctx->Input(1)));
    } else if (*known) {
      ctx->SetOutputExpression(0, ctx->InputExpression(0));
    } else {
      ctx->SetConstantOutput(0, tensorflow::Tensor(false));
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("HostcallAnd").Device(tensorflow::DEVICE_CPU_XLA_JIT), AndXlaKernel);

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
    return TypedCall(ctx->builder(), "hostcall_any", {ctx->Input(0), ctx->Input(1)},
                     xla::ShapeUtil::MakeScalarShape(xla::PRED),
                     absl::StrCat("{kind = \"", kind_, "\"}"), /*has_side_effect=*/false);
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

// A failure that a program may have; without an error, it is the number of one.
struct XlaFailure {
  xla::XlaOp value;
  std::string error;

  bool is_number() const { return error.empty(); }
};

// Returns whether a value is the result of a call, a loop or a branch, for which XLA compiles no
// kernel of its own.
bool IsOfCall(xla::XlaOp op) {
  using Builder = xla::internal::XlaBuilderFriend;
  const xla::HloInstructionProto* made = Builder::GetInstruction(op);
  if (made->opcode() == "get-tuple-element") {
    made = Builder::GetInstructionByHandle(op.builder(), made->operand_ids(0));
  }
  const std::string& opcode = made->opcode();
  return opcode == "custom-call" || opcode == "while" || opcode == "conditional";
}

// Returns the number of the first error that a program has of those failures, or 0.
xla::XlaOp NumberOf(const std::vector<XlaFailure>& failures) {
  xla::XlaBuilder* const builder = failures[0].value.builder();
  const xla::XlaOp zero = xla::ConstantR0<int32_t>(builder, 0);
  xla::XlaOp number = zero;
  for (auto failure = failures.rbegin(); failure != failures.rend(); ++failure) {
    if (failure->is_number()) {
      number = xla::Select(xla::Ne(failure->value, zero), failure->value, number);
      continue;
    }
    const int32_t own = std::atoi(failure->error.c_str());  // with which the error begins
    number = xla::Select(failure->value, xla::ConstantR0(builder, own), number);
  }
  return number;
}

// The operands of a call that raises, and its errors. Each operand that XLA has to compute is a
// kernel to compile, so neighbours of these become one number.
class RaisedFailures {
 public:
  void Add(XlaFailure failure) {
    if (!IsOfCall(failure.value)) {
      computed_.push_back(std::move(failure));
      return;
    }
    JoinComputed();
    AddOperand(std::move(failure));
  }

  // Takes the errors that numbers stand for.
  void AddErrors(std::vector<std::string>::const_iterator begin,
                 std::vector<std::string>::const_iterator end) {
    JoinComputed();
    of_numbers_.insert(of_numbers_.end(), begin, end);
  }

  const std::vector<xla::XlaOp>& operands() const { return operands_; }

  std::vector<std::string> errors() const {
    std::vector<std::string> all = of_booleans_;
    all.insert(all.end(), of_numbers_.begin(), of_numbers_.end());
    return all;
  }

 private:
  void JoinComputed() {
    if (computed_.size() > 1) {
      operands_.push_back(NumberOf(computed_));
      for (XlaFailure& failure : computed_) {
        if (!failure.is_number()) of_numbers_.push_back(std::move(failure.error));
      }
    } else if (!computed_.empty()) {
      AddOperand(std::move(computed_[0]));
    }
    computed_.clear();
  }

  void AddOperand(XlaFailure failure) {
    operands_.push_back(failure.value);
    if (!failure.is_number()) of_booleans_.push_back(std::move(failure.error));
  }

  std::vector<XlaFailure> computed_;
  std::vector<xla::XlaOp> operands_;
  std::vector<std::string> of_booleans_, of_numbers_;
};

class RaiseXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit RaiseXlaKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("errors", &errors_));
    const auto booleans =
        std::count(input_types().begin(), input_types().end(), tensorflow::DT_BOOL);
    OP_REQUIRES(ctx, static_cast<size_t>(booleans) <= errors_.size(),
                absl::InvalidArgumentError("hostcall: an error is missing"));
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
  }

  void Compile(tensorflow::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Emit(ctx)); }

 private:
  absl::Status Emit(tensorflow::XlaOpKernelContext* ctx) {
    const RaisedFailures failures = Failures(ctx);
    std::vector<xla::XlaOp> operands = failures.operands();
    xla::XlaOp before;
    if (!tokens_.empty()) {
      TF_ASSIGN_OR_RETURN(before, tokens_.Before(ctx));
    }
    if (operands.empty()) return tokens_.empty() ? absl::OkStatus() : tokens_.SetAfter(ctx, before);
    std::vector<xla::Shape> results;
    if (!tokens_.empty()) {
      operands.push_back(before);
      results.push_back(xla::ShapeUtil::MakeTokenShape());
    }
    const xla::XlaOp call =
        TypedCall(ctx->builder(), kRaiseTarget, operands, xla::ShapeUtil::MakeTupleShape(results),
                  TextAttribute(absl::StrJoin(failures.errors(), "\x1e")),
                  /*has_side_effect=*/true);
    if (tokens_.empty()) return absl::OkStatus();
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, 0));
  }

  // Returns the failures of the operands but those of which XLA knows that they never are.
  RaisedFailures Failures(tensorflow::XlaOpKernelContext* ctx) const {
    RaisedFailures failures;
    auto error = errors_.begin();
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const bool is_number = ctx->input_type(i) == tensorflow::DT_INT32;
      std::string own = is_number ? "" : *error++;
      if (ctx->InputExpression(i).kind() == tensorflow::XlaExpression::Kind::kConstant &&
          !is_number && !Known(ctx, i).value_or(true)) {
        continue;
      }
      failures.Add({ctx->Input(i), std::move(own)});
    }
    failures.AddErrors(error, errors_.end());
    return failures;
  }

  NodeTokens tokens_;
  std::vector<std::string> errors_;
};

REGISTER_KERNEL_BUILDER(Name("HostcallRaise").Device(tensorflow::DEVICE_CPU_XLA_JIT),
                        RaiseXlaKernel);

}  // namespace
}  // namespace hostcall
