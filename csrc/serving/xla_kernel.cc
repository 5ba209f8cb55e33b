// XLA kernels of script ops: an op becomes one custom call.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "callee.h"
#include "functions/fallback_kernel.h"
#include "functions/typed_call.h"
#include "hostcall_attributes.h"
#include "hostcall_xla_op_kernel.h"
#include "kernels.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace hostcall::serving {
namespace {

using tensorflow::DataType;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernelContext;

// An op that is compiled.
struct CompiledOp {
  const tensorflow::NodeDef& node;
  std::vector<tensorflow::DataType> input_types;
  std::vector<tensorflow::DataType> output_types;
};

// Prefixes of the tokens of checks of values (plugin/hostcall/_saved/server_programs.py).
constexpr char kErrors[] = "hostcall:errors:", kKind[] = "hostcall:any:";

// Returns true for errors as the runtime takes them: a number, a status code and a message of each.
bool AreErrors(std::string_view errors) {
  const std::vector<std::string_view> each = absl::StrSplit(errors, '\x1e');
  return std::all_of(each.begin(), each.end(), [](std::string_view error) {
    const std::vector<std::string_view> parts = absl::StrSplit(error, absl::MaxSplits(':', 2));
    int32_t number, code;
    return parts.size() == 3 && absl::SimpleAtoi(parts[0], &number) && number > 0 &&
           absl::SimpleAtoi(parts[1], &code) && code > 0 && code <= 16;
  });
}

// Returns the shape that tracing left on the op, if it is fully known.
std::optional<std::vector<int64_t>> TracedShape(const tensorflow::NodeDef& node, size_t index) {
  const auto shapes = node.attr().find(attributes::SHAPES);
  if (shapes == node.attr().end() ||
      index >= static_cast<size_t>(shapes->second.list().shape_size())) {
    return std::nullopt;
  }
  const tensorflow::PartialTensorShape shape(shapes->second.list().shape(static_cast<int>(index)));
  if (!shape.IsFullyDefined()) return std::nullopt;
  const auto sizes = shape.dim_sizes();
  return std::vector<int64_t>(sizes.begin(), sizes.end());
}

// Returns nullopt if the graph leaves a size open.
std::optional<Shapes> KnownShapes(const Callee& callee, const CompiledOp& op) {
  const auto& specs = callee.token.static_shapes;
  Shapes shapes;
  for (size_t i = 0; i < op.output_types.size(); ++i) {
    std::optional<std::vector<int64_t>> shape = TracedShape(op.node, i);
    if (!shape.has_value() && i < specs.size()) shape = specs[i];
    if (!shape.has_value()) return std::nullopt;
    shapes.push_back(*std::move(shape));
  }
  return shapes;
}

absl::StatusOr<Shapes> AskedShapes(const Callee& callee, const CompiledOp& op,
                                   const Shapes& inputs) {
  WorkerCall call{op.node.op(), callee.text, {}, {op.output_types.begin(), op.output_types.end()}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    call.arguments.push_back({static_cast<int32_t>(op.input_types[i]), inputs[i], {}, {}});
  }
  Shapes shapes;
  TF_RETURN_IF_ERROR(StatusOf(AskShapes(call, shapes)));
  const bool is_known = std::all_of(shapes.begin(), shapes.end(), [](const auto& shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
  });
  if (is_known) return shapes;
  return absl::UnimplementedError(absl::StrCat("hostcall: the shapes of the results of ",
                                               callee.token.label,
                                               " are not known when XLA compiles"));
}

// Returns the shapes that the graph has, or asks a worker if the graph leaves a size open.
absl::StatusOr<Shapes> ResultShapes(const Callee& callee, const CompiledOp& op,
                                    const Shapes& inputs) {
  if (callee.native != nullptr) return callee.NativeShapes(inputs);
  if (std::optional<Shapes> known = KnownShapes(callee, op)) return *std::move(known);
  return AskedShapes(callee, op, inputs);
}

// Returns the name of a call with side effects, by its number in the computation.
std::string CallName(int number) { return absl::StrCat("hostcall_serving_", number); }

// Token chain of a computation's calls with side effects, since XLA runs independent calls in any
// order. Its order is that in which XLA sees the nodes, which follows their control edges.
class CallOrder {
 public:
  explicit CallOrder(XlaOpKernelContext* ctx) : ctx_(ctx) {
    token_ = xla::CreateToken(ctx->builder());
    while (true) {
      absl::StatusOr<xla::XlaOp> token = ctx->compiler()->GetNodeToken(CallName(number_));
      if (!token.ok()) return;
      token_ = *token;
      ++number_;
    }
  }

  xla::XlaOp before() const { return token_; }
  absl::Status SetAfter(xla::XlaOp token) {
    return ctx_->compiler()->SetNodeToken(CallName(number_), token);
  }

 private:
  XlaOpKernelContext* const ctx_;
  int number_ = 0;
  xla::XlaOp token_;
};

// Returns a text as MLIR writes it.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const unsigned char c : text) {
    const bool is_plain = c >= ' ' && c < 0x7f && c != '"' && c != '\\';
    if (is_plain) {
      quoted.push_back(static_cast<char>(c));
    } else {
      absl::StrAppendFormat(&quoted, "\\%02X", c);
    }
  }
  return quoted + "\"";
}

std::string ArrayOf(const std::vector<DataType>& types) {
  const auto number = [](std::string* out, DataType type) {
    absl::StrAppend(out, static_cast<int>(type));
  };
  const char* colon = types.empty() ? "" : ": ";
  return absl::StrCat("array<i32", colon, absl::StrJoin(types, ", ", number), ">");
}

// Returns the type in a program. Refuses a dtype that XLA packs or has no values of.
absl::StatusOr<xla::PrimitiveType> TypeOf(DataType dtype, std::string_view what) {
  xla::PrimitiveType type;
  const bool is_known = tensorflow::DataTypeToPrimitiveType(dtype, &type).ok();
  if (is_known && type != xla::S4 && type != xla::U4) return type;
  return absl::UnimplementedError(absl::StrCat("hostcall: ", what, " of a host function is a ",
                                               tensorflow::DataTypeString(dtype),
                                               ", which programs cannot hand over"));
}

// Makes an error a refusal, since XLA keeps an error, and a worker or a library may be there at the
// next call. TensorFlow's kernels then call the function, or say why they cannot.
absl::Status AsRefusal(const absl::Status& status) {
  return status.ok() ? status : RefusalOfOurs(status.message());
}

class ScriptOpKernel : public tensorflow::XlaOpKernel {
 public:
  explicit ScriptOpKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("token", &token_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    OP_REQUIRES(ctx, IsForCpu(ctx),
                absl::UnimplementedError(absl::StrCat(
                    "hostcall: op '", name(), "' (", type_string(),
                    ") is compiled for a GPU, and host functions run in programs for the CPU only. "
                    "Place the function on the CPU: with tf.device('/CPU:0').")));
    std::string_view check = token_;
    if (absl::ConsumePrefix(&check, kErrors)) {
      OP_REQUIRES_OK(ctx, AsRefusal(EmitRaise(ctx, check)));
      return;
    }
    if (absl::ConsumePrefix(&check, kKind)) {
      OP_REQUIRES_OK(ctx, AsRefusal(EmitAny(ctx, check)));
      return;
    }
    const absl::StatusOr<const Callee*> callee = FindCallee(token_);
    OP_REQUIRES_OK(ctx, AsRefusal(callee.status()));
    Shapes inputs;
    OP_REQUIRES_OK(ctx, ReadInputs(ctx, inputs));
    const CompiledOp op{def(),
                        {input_types().begin(), input_types().end()},
                        {output_types().begin(), output_types().end()}};
    absl::StatusOr<Shapes> results = ResultShapes(**callee, op, inputs);
    OP_REQUIRES_OK(ctx, AsRefusal(results.status()));
    OP_REQUIRES(ctx, results->size() == static_cast<size_t>(num_outputs()),
                absl::InvalidArgumentError(
                    absl::StrCat("hostcall: ", (*callee)->token.label, " has ", results->size(),
                                 " results, and is called by an op with ", num_outputs())));
    OP_REQUIRES_OK(ctx, AsRefusal(Emit(ctx, **callee, op, *results)));
  }

 private:
  static bool IsForCpu(XlaOpKernelContext* ctx) {
    return ctx->op_kernel_context()->device()->attributes().device_type() ==
           tensorflow::DEVICE_CPU_XLA_JIT;
  }

  static absl::Status NoCheck() {
    return absl::InvalidArgumentError(
        "hostcall: the graph was damaged or altered: a check of values in it takes or returns "
        "something else than such checks do");
  }

  static bool IsScalar(XlaOpKernelContext* ctx, int input, xla::PrimitiveType type) {
    const absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(input);
    return shape.ok() && xla::ShapeUtil::IsScalarWithElementType(*shape, type);
  }

  // Ends the program with the error of the first failure, if any (runtime/handler.h).
  absl::Status EmitRaise(XlaOpKernelContext* ctx, std::string_view errors) const {
    if (ctx->num_inputs() == 0 || num_outputs() != 0 || !AreErrors(errors)) return NoCheck();
    std::vector<xla::XlaOp> operands;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      if (!IsScalar(ctx, i, xla::S32) && !IsScalar(ctx, i, xla::PRED)) return NoCheck();
      operands.push_back(ctx->Input(i));
    }
    CallOrder order(ctx);
    operands.push_back(order.before());
    const xla::Shape result = xla::ShapeUtil::MakeTupleShape({xla::ShapeUtil::MakeTokenShape()});
    const xla::XlaOp call =
        TypedCall(ctx->builder(), kRaiseTarget, operands, result,
                  absl::StrCat("{errors = ", Quoted(errors), "}"), /*has_side_effect=*/true);
    return order.SetAfter(xla::GetTupleElement(call, 0));
  }

  // Tells whether any of the integers is what `kind` says of the limit.
  absl::Status EmitAny(XlaOpKernelContext* ctx, std::string_view kind) const {
    if (ctx->num_inputs() != 2 || num_outputs() != 1) return NoCheck();
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(0));
    const xla::PrimitiveType type = shape.element_type();
    if ((type != xla::S32 && type != xla::S64) || !IsScalar(ctx, 1, type)) return NoCheck();
    if (shape.is_dynamic()) {
      return absl::UnimplementedError("hostcall: a value to check has a size that is only bounded");
    }
    ctx->SetOutput(0, TypedCall(ctx->builder(), kAnyTarget, {ctx->Input(0), ctx->Input(1)},
                                xla::ShapeUtil::MakeScalarShape(xla::PRED),
                                absl::StrCat("{kind = ", Quoted(kind), "}"),
                                /*has_side_effect=*/false));
    return absl::OkStatus();
  }

  absl::Status ReadInputs(XlaOpKernelContext* ctx, Shapes& shapes) const {
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      TF_RETURN_IF_ERROR(TypeOf(ctx->input_type(i), absl::StrCat("argument ", i)).status());
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(i));
      if (shape.is_dynamic()) {
        return absl::UnimplementedError(absl::StrCat(
            "hostcall: argument ", i, " of a host function has a size that is only bounded"));
      }
      shapes.emplace_back(shape.dimensions().begin(), shape.dimensions().end());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<xla::Shape>> ResultTypes(const Shapes& results) const {
    std::vector<xla::Shape> shapes;
    for (size_t i = 0; i < results.size(); ++i) {
      TF_ASSIGN_OR_RETURN(const xla::PrimitiveType type,
                          TypeOf(output_type(static_cast<int>(i)), absl::StrCat("result ", i)));
      // XLA ends the process if an int64 cannot hold the number of elements.
      TensorShape countable;
      TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(results[i], &countable));
      shapes.push_back(xla::ShapeUtil::MakeShapeWithDescendingLayout(type, results[i]));
    }
    return shapes;
  }

  absl::Status Emit(XlaOpKernelContext* ctx, const Callee& callee, const CompiledOp& op,
                    const Shapes& results) {
    TF_ASSIGN_OR_RETURN(std::vector<xla::Shape> shapes, ResultTypes(results));
    std::vector<xla::XlaOp> operands;
    for (int i = 0; i < ctx->num_inputs(); ++i) operands.push_back(ctx->Input(i));
    const bool has_effects = type_string_view() != "PyFuncStateless" && !callee.token.pure;
    CallOrder order(ctx);
    if (has_effects) {
      operands.push_back(order.before());
      shapes.push_back(xla::ShapeUtil::MakeTokenShape());
    }
    const xla::XlaOp call =
        TypedCall(ctx->builder(), kTarget, operands, xla::ShapeUtil::MakeTupleShape(shapes),
                  Attributes(op), has_effects);
    for (int i = 0; i < num_outputs(); ++i) ctx->SetOutput(i, xla::GetTupleElement(call, i));
    return has_effects ? order.SetAfter(xla::GetTupleElement(call, num_outputs()))
                       : absl::OkStatus();
  }

  std::string Attributes(const CompiledOp& op) const {
    return absl::StrCat("{op = ", Quoted(type_string()), ", token = ", Quoted(token_),
                        ", argument_types = ", ArrayOf(op.input_types),
                        ", result_types = ", ArrayOf(op.output_types), "}");
  }

  std::string token_;
};

}  // namespace

// Not REGISTER_XLA_OP: its registrations take effect only once, when the process compiles its first
// function.
#define HOSTCALL_REGISTER(op)                                                               \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU_XLA_JIT), ScriptOpKernel); \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU_XLA_JIT), ScriptOpKernel)

void RegisterXlaKernels() {
  HOSTCALL_REGISTER("PyFunc");
  HOSTCALL_REGISTER("PyFuncStateless");
  HOSTCALL_REGISTER("EagerPyFunc");
}

#undef HOSTCALL_REGISTER

}  // namespace hostcall::serving
