// XLA kernels of the three script ops: an op becomes one typed-FFI custom call, or two if it goes
// on while its program does (runtime/early_calls.h).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "functions/typed_call.h"
#include "hostcall_xla_op_kernel.h"
#include "launch.h"
#include "node_tokens.h"
#include "python_hooks.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

using tensorflow::XlaOpKernelContext;

BoundedShape ToBoundedShape(const xla::Shape& shape) {
  BoundedShape bounded;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.dimensions().size()); ++i) {
    bounded.dims.push_back(shape.dimensions(i));
    bounded.dynamic.push_back(shape.is_dynamic_dimension(i));
  }
  return bounded;
}

// Returns the type in Python. XLA packs two int4 in a byte. They cross into Python as int8, and the
// handler's attributes say that they were int4.
xla::PrimitiveType UnpackedType(xla::PrimitiveType type) {
  return type == xla::S4 ? xla::S8 : type == xla::U4 ? xla::U8 : type;
}

xla::XlaOp ConvertTo(xla::XlaOp op, xla::PrimitiveType from, xla::PrimitiveType to) {
  return from == to ? op : xla::ConvertElementType(op, to);
}

// Returns operands in the order that the handler expects. XLA passes a custom call the padded
// buffer of a bounded operand and forgets its size, so the size becomes an operand of its own.
std::vector<xla::XlaOp> Operands(XlaOpKernelContext* ctx, const std::vector<int64_t>& used,
                                 const std::vector<Operand>& specs) {
  std::vector<xla::XlaOp> operands;
  std::vector<xla::XlaOp> sizes;
  for (const int64_t index : used) {
    xla::XlaOp operand = ctx->Input(static_cast<int>(index));
    const BoundedShape& shape = specs[index].shape;
    for (size_t dim = 0; dim < shape.dims.size(); ++dim) {
      if (!shape.dynamic[dim]) continue;
      sizes.push_back(xla::GetDimensionSize(operand, static_cast<int64_t>(dim)));
      operand = xla::RemoveDynamicDimension(operand, static_cast<int64_t>(dim));
    }
    const xla::PrimitiveType type = ctx->input_xla_type(static_cast<int>(index));
    operands.push_back(ConvertTo(operand, type, UnpackedType(type)));
  }
  operands.insert(operands.end(), sizes.begin(), sizes.end());
  return operands;
}

xla::Shape DenseShape(xla::PrimitiveType type, const std::vector<int64_t>& dims) {
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(type, dims);
}

// Returns true if the program is for the CPU. XLA_CPU's programs are, too.
bool IsForCpu(XlaOpKernelContext* ctx) {
  return ctx->op_kernel_context()->device()->attributes().device_type() ==
         tensorflow::DEVICE_CPU_XLA_JIT;
}

// Returns the shapes of operands in the layout of NumPy's arrays.
absl::StatusOr<std::vector<xla::Shape>> DenseShapes(xla::XlaBuilder* builder,
                                                    const std::vector<xla::XlaOp>& ops) {
  std::vector<xla::Shape> shapes;
  for (const xla::XlaOp op : ops) {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(op));
    shapes.push_back(shape.IsArray() ? DenseShape(shape.element_type(), {shape.dimensions().begin(),
                                                                         shape.dimensions().end()})
                                     : shape);
  }
  return shapes;
}

// Emits a custom call whose operands are dense.
xla::XlaOp DenseCall(XlaOpKernelContext* ctx, const std::string& target,
                     const std::vector<xla::XlaOp>& operands, const xla::Shape& result,
                     const std::string& attributes, bool has_side_effect) {
  xla::XlaBuilder* const builder = ctx->builder();
  if (IsForCpu(ctx)) {
    return TypedCall(builder, target, operands, result, attributes, has_side_effect);
  }
  // XLA's CPU compiler makes all operands dense. Its GPU compiler passes a transposed operand as it
  // lies in memory, unless the call has layouts.
  const absl::StatusOr<std::vector<xla::Shape>> shapes = DenseShapes(builder, operands);
  if (!shapes.ok()) return builder->ReportError(shapes.status());
  return xla::CustomCallWithLayout(builder, target, operands, result, *shapes, attributes,
                                   has_side_effect, /*output_operand_aliasing=*/{},
                                   /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
                                   xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

// Base of the kernels, which emit a lowered op as one or more custom calls.
class LoweringKernel : public tensorflow::XlaOpKernel {
 public:
  // Takes the script op to lower: the kernel's own node, or one that it stands for.
  LoweringKernel(tensorflow::OpKernelConstruction* ctx, tensorflow::NodeDef node)
      : XlaOpKernel(ctx), node_(std::move(node)) {
    std::vector<tensorflow::DataType> inputs, results;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tin", &inputs));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tout", &results));
    inputs_ = static_cast<int>(inputs.size());
    results_ = results.size();
  }

  void Compile(XlaOpKernelContext* ctx) final {
    OP_REQUIRES(ctx, IsEnabled(),
                absl::InvalidArgumentError(absl::StrCat(
                    "hostcall is disabled: op '", node_.name(), "' (", node_.op(),
                    ") has no XLA kernel without it. Call hostcall.enable() first, or remove "
                    "jit_compile=True.")));
    std::vector<Operand> specs;
    OP_REQUIRES_OK(ctx, DescribeInputs(ctx, specs));
    absl::StatusOr<LoweredCall> lowered = LowerScriptOp(node_, specs);
    if (!lowered.ok()) {
      ctx->CtxFailure(lowered.status());  // without a line in the log: TensorFlow logs it, too
      return;
    }
    OP_REQUIRES(ctx, Fits(*lowered), AnsweredForAnotherOp());
    OP_REQUIRES(ctx, IsForCpu(ctx) || lowered->target == kTarget, CalledOnCpusAlone());
    OP_REQUIRES_OK(ctx, Emit(ctx, *lowered, specs));
  }

 protected:
  virtual absl::Status Emit(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                            const std::vector<Operand>& specs) = 0;

  const tensorflow::NodeDef& node() const { return node_; }
  int inputs() const { return inputs_; }  // of the script op

  absl::Status AnsweredForAnotherOp() const {
    return absl::InternalError(absl::StrCat(
        "hostcall: op '", node_.name(), "' (", node_.op(), ") with ", inputs_, " inputs and ",
        results_,
        " results was lowered as one with others. This is a bug in hostcall; please report it."));
  }

  // Returns the shapes of the results, then of the true size of each of their bounded dimensions.
  absl::StatusOr<std::vector<xla::Shape>> ResultShapes(const LoweredCall& lowered) const {
    std::vector<tensorflow::DataType> dtypes;
    TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(node_, "Tout", &dtypes));
    std::vector<xla::Shape> shapes;
    size_t sizes = 0;
    for (size_t i = 0; i < lowered.results.size(); ++i) {
      xla::PrimitiveType type;
      if (!tensorflow::DataTypeToPrimitiveType(dtypes[i], &type).ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "hostcall: result ", i, " of op '", node_.name(), "' (", node_.op(), ") is of dtype ",
            tensorflow::DataTypeString(dtypes[i]),
            ", which XLA has no values for. Return it in another way, or leave the op outside of "
            "the function with jit_compile=True."));
      }
      shapes.push_back(DenseShape(UnpackedType(type), lowered.results[i].dims));
      for (const bool dynamic : lowered.results[i].dynamic) sizes += dynamic;
    }
    shapes.insert(shapes.end(), sizes, DenseShape(xla::S32, {}));
    return shapes;
  }

  void SetOutputs(XlaOpKernelContext* ctx, const LoweredCall& lowered, xla::XlaOp call) {
    auto size = static_cast<int64_t>(lowered.results.size());
    for (size_t i = 0; i < lowered.results.size(); ++i) {
      const xla::PrimitiveType type = ctx->output_xla_type(static_cast<int>(i));
      xla::XlaOp result =
          ConvertTo(xla::GetTupleElement(call, static_cast<int64_t>(i)), UnpackedType(type), type);
      const BoundedShape& shape = lowered.results[i];
      for (size_t dim = 0; dim < shape.dims.size(); ++dim) {
        if (!shape.dynamic[dim]) continue;
        result = xla::SetDimensionSize(result, xla::GetTupleElement(call, size++),
                                       static_cast<int64_t>(dim));
      }
      ctx->SetOutput(static_cast<int>(i), result);
    }
  }

 private:
  // Target of the calls that programs for GPUs can make, too.
  static constexpr char kTarget[] = "hostcall";

  // Makes the error for which hostcall partitions a function. Users see it only if they ask for a
  // program without running it, as by experimental_get_compiler_ir.
  absl::Status CalledOnCpusAlone() const {
    return absl::UnimplementedError(absl::StrCat(
        "hostcall: op '", node_.name(), "' (", node_.op(),
        ") calls native code, which only programs for the CPU can do. Place the function on the "
        "CPU, with tf.device('/CPU:0'), or let it be partitioned."));
  }

  absl::Status DescribeInputs(XlaOpKernelContext* ctx, std::vector<Operand>& specs) {
    for (int i = 0; i < inputs_; ++i) {
      const tensorflow::DataType dtype = ctx->input_type(i);
      if (xla::PrimitiveType type; !tensorflow::DataTypeToPrimitiveType(dtype, &type).ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "hostcall: input ", i, " of op '", node_.name(), "' (", node_.op(), ") is of dtype ",
            tensorflow::DataTypeString(dtype),
            ", which XLA has no values for. Pass it to the Python function in another way, or "
            "leave the op outside of the function with jit_compile=True."));
      }
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(i));
      specs.push_back({dtype, ToBoundedShape(shape)});
    }
    return absl::OkStatus();
  }

  // Checks Python's answer for an op, since it is used to index the op's inputs and outputs.
  bool Fits(const LoweredCall& lowered) const {
    if (lowered.results.size() != results_) return false;
    for (const int64_t index : lowered.operands) {
      if (index < 0 || index >= inputs_) return false;
    }
    return std::all_of(
        lowered.results.begin(), lowered.results.end(),
        [](const BoundedShape& shape) { return shape.dims.size() == shape.dynamic.size(); });
  }

  const tensorflow::NodeDef node_;
  int inputs_ = 0;
  size_t results_ = 0;
};

class ScriptOpKernel : public LoweringKernel {
 public:
  explicit ScriptOpKernel(tensorflow::OpKernelConstruction* ctx) : LoweringKernel(ctx, ctx->def()) {
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
  }

 private:
  absl::Status Emit(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                    const std::vector<Operand>& specs) override {
    TF_ASSIGN_OR_RETURN(const bool folded, lowered.foldable ? Fold(ctx, lowered) : false);
    return folded ? absl::OkStatus() : EmitCall(ctx, lowered, specs);
  }

  // Puts the results into the program as constants instead of a call. Returns true if it could. Not
  // done for every op: XLA may have to evaluate much of the program to find out whether inputs are
  // constants.
  absl::StatusOr<bool> Fold(XlaOpKernelContext* ctx, const LoweredCall& lowered) {
    std::vector<tensorflow::Tensor> inputs;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      absl::StatusOr<tensorflow::Tensor> input = ctx->ConstantInputTensor(i);
      if (!input.ok()) return false;  // it is not a constant
      inputs.push_back(*std::move(input));
    }
    const FoldScope scope;
    TF_ASSIGN_OR_RETURN(const auto results, EvaluateScriptOp(node(), inputs));
    if (!results.has_value()) return false;
    if (!Fits(lowered, *results)) return AnsweredForAnotherOp();
    for (size_t i = 0; i < results->size(); ++i) {
      ctx->SetConstantOutput(static_cast<int>(i), (*results)[i]);
    }
    if (tokens_.empty()) return true;
    TF_ASSIGN_OR_RETURN(const xla::XlaOp token, tokens_.Before(ctx));
    TF_RETURN_IF_ERROR(tokens_.SetAfter(ctx, token));
    return true;
  }

  bool Fits(const LoweredCall& lowered, const std::vector<tensorflow::Tensor>& results) const {
    if (results.size() != lowered.results.size()) return false;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto dims = results[i].shape().dim_sizes();
      if (results[i].dtype() != output_type(static_cast<int>(i)) ||
          !std::equal(dims.begin(), dims.end(), lowered.results[i].dims.begin(),
                      lowered.results[i].dims.end())) {
        return false;
      }
    }
    return true;
  }

  absl::Status EmitCall(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                        const std::vector<Operand>& specs) {
    std::vector<xla::XlaOp> operands = Operands(ctx, lowered.operands, specs);
    if (!tokens_.empty()) {
      TF_ASSIGN_OR_RETURN(operands.emplace_back(), tokens_.Before(ctx));
    }
    TF_ASSIGN_OR_RETURN(std::vector<xla::Shape> shapes, ResultShapes(lowered));
    if (!tokens_.empty()) shapes.push_back(xla::ShapeUtil::MakeTokenShape());
    const xla::XlaOp call =
        DenseCall(ctx, lowered.target, operands, xla::ShapeUtil::MakeTupleShape(shapes),
                  lowered.attributes, lowered.has_side_effect);
    SetOutputs(ctx, lowered, call);
    if (tokens_.empty()) return absl::OkStatus();
    const auto last = static_cast<int64_t>(shapes.size()) - 1;
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, last));
  }

  NodeTokens tokens_;
};

// Returns the script op that a node stands for.
tensorflow::NodeDef ScriptOp(tensorflow::NodeDef node) {
  node.set_op(node.attr().at("kind").s());
  node.set_name(node.attr().at("script_op").s());
  return node;
}

// Returns the value of a call's attribute `results`, which describes them.
std::string Described(const std::vector<xla::Shape>& results) {
  std::vector<int64_t> numbers;
  for (const xla::Shape& result : results) {
    numbers.push_back(result.element_type());
    numbers.push_back(static_cast<int64_t>(result.dimensions().size()));
    numbers.insert(numbers.end(), result.dimensions().begin(), result.dimensions().end());
  }
  return numbers.empty() ? "array<i64>"
                         : absl::StrCat("array<i64: ", absl::StrJoin(numbers, ", "), ">");
}

// XLA must not repeat, drop or merge these calls: a start and its end belong together.
constexpr bool kHasSideEffect = true;

class StartKernel : public LoweringKernel {
 public:
  explicit StartKernel(tensorflow::OpKernelConstruction* ctx)
      : LoweringKernel(ctx, ScriptOp(ctx->def())) {}

 private:
  absl::Status Emit(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                    const std::vector<Operand>& specs) override {
    TF_ASSIGN_OR_RETURN(const std::vector<xla::Shape> shapes, ResultShapes(lowered));
    std::string attributes = lowered.attributes;
    if (attributes.empty() || attributes.back() != '}') return AnsweredForAnotherOp();
    attributes.pop_back();
    absl::StrAppend(&attributes, ", results = ", Described(shapes), "}");
    ctx->SetOutput(
        0, DenseCall(ctx, "hostcall_start", Operands(ctx, lowered.operands, specs),
                     xla::ShapeUtil::MakeScalarShape(xla::S64), attributes, kHasSideEffect));
    return absl::OkStatus();
  }
};

class DoneKernel : public LoweringKernel {
 public:
  explicit DoneKernel(tensorflow::OpKernelConstruction* ctx)
      : LoweringKernel(ctx, ScriptOp(ctx->def())) {}

 private:
  absl::Status Emit(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                    const std::vector<Operand>& /*specs*/) override {
    TF_ASSIGN_OR_RETURN(const std::vector<xla::Shape> shapes, ResultShapes(lowered));
    std::vector<xla::XlaOp> awaited;
    for (int i = inputs(); i < num_inputs(); ++i) awaited.push_back(ctx->Input(i));
    SetOutputs(ctx, lowered,
               DenseCall(ctx, "hostcall_done", awaited, xla::ShapeUtil::MakeTupleShape(shapes),
                         "{}", kHasSideEffect));
    return absl::OkStatus();
  }
};

class GateKernel : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* ctx) override {
    std::vector<xla::XlaOp> awaited;
    for (int i = 0; i < num_inputs(); ++i) {
      // XLA has no custom calls of values with a bounded size.
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      if (shape.ok() && shape->IsArray() && shape->is_static()) awaited.push_back(ctx->Input(i));
    }
    ctx->SetOutput(
        0, DenseCall(ctx, "hostcall_gate", awaited, xla::ShapeUtil::MakeScalarShape(xla::S64), "{}",
                     /*has_side_effect=*/false));
  }
};

// Not REGISTER_XLA_OP: its registrations take effect only once, when the process compiles its first
// function, so that `import hostcall` after that would come too late.
#define HOSTCALL_REGISTER(op)                                                               \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU_XLA_JIT), ScriptOpKernel); \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU_XLA_JIT), ScriptOpKernel)
HOSTCALL_REGISTER("PyFunc");
HOSTCALL_REGISTER("PyFuncStateless");
HOSTCALL_REGISTER("EagerPyFunc");
#undef HOSTCALL_REGISTER

REGISTER_KERNEL_BUILDER(Name("HostcallStart").Device(tensorflow::DEVICE_CPU_XLA_JIT), StartKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallDone").Device(tensorflow::DEVICE_CPU_XLA_JIT), DoneKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallGate").Device(tensorflow::DEVICE_CPU_XLA_JIT), GateKernel);

}  // namespace
}  // namespace hostcall
