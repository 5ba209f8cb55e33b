// The XLA kernel of the three script ops: an op becomes one typed-FFI custom call.
//
// Including XLA's builder makes this file slow to compile (40 s): keep what does not need it out.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "current_launch.h"
#include "node_tokens.h"
#include "python_hooks.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
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

// XLA packs int4, two in a byte. It crosses into Python as int8, and the handler's attributes say
// that it was int4.
xla::PrimitiveType UnpackedType(xla::PrimitiveType type) {
  return type == xla::S4 ? xla::S8 : type == xla::U4 ? xla::U8 : type;
}

xla::XlaOp ConvertTo(xla::XlaOp op, xla::PrimitiveType from, xla::PrimitiveType to) {
  return from == to ? op : xla::ConvertElementType(op, to);
}

// XLA passes a custom call the padded buffer of a bounded operand and forgets its size; so it goes
// in as an operand of its own, in the order that the handler expects.
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

class ScriptOpKernel : public tensorflow::XlaOpKernel {
 public:
  explicit ScriptOpKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    OP_REQUIRES(ctx, IsEnabled(),
                absl::InvalidArgumentError(absl::StrCat(
                    "hostcall is disabled: op '", name(), "' (", type_string(),
                    ") has no XLA kernel without it. Call hostcall.enable() first, or remove "
                    "jit_compile=True.")));
    std::vector<Operand> specs;
    OP_REQUIRES_OK(ctx, DescribeInputs(ctx, specs));
    absl::StatusOr<LoweredCall> lowered = LowerScriptOp(def(), specs);
    OP_REQUIRES_OK(ctx, lowered.status());
    OP_REQUIRES(ctx, Fits(*lowered), AnsweredForAnotherOp());
    absl::StatusOr<bool> folded = lowered->foldable ? Fold(ctx, *lowered) : false;
    OP_REQUIRES_OK(ctx, folded.status());
    if (!*folded) OP_REQUIRES_OK(ctx, Emit(ctx, *lowered, specs));
  }

 private:
  absl::Status DescribeInputs(XlaOpKernelContext* ctx, std::vector<Operand>& specs) {
    if (ctx->compiler()->options().device_type.type_string() != tensorflow::DEVICE_CPU_XLA_JIT) {
      return absl::UnimplementedError(absl::StrCat(
          "hostcall: op '", name(), "' (", type_string(), ") is compiled for ",
          ctx->compiler()->options().device_type.type_string(),
          ", and host callbacks run in programs for the CPU only. Place the function on the CPU: "
          "with tf.device('/CPU:0')."));
    }
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const tensorflow::DataType dtype = ctx->input_type(i);
      if (xla::PrimitiveType type; !tensorflow::DataTypeToPrimitiveType(dtype, &type).ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "hostcall: input ", i, " of op '", name(), "' (", type_string(), ") is of dtype ",
            tensorflow::DataTypeString(dtype),
            ", which XLA has no values for. Pass it to the Python function in another way, or "
            "leave the op outside of the function with jit_compile=True."));
      }
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      if (!shape.ok()) return shape.status();
      specs.push_back({dtype, ToBoundedShape(*shape)});
    }
    return absl::OkStatus();
  }

  // What Python says of an op is used to index the op's inputs and outputs.
  bool Fits(const LoweredCall& lowered) const {
    if (lowered.results.size() != static_cast<size_t>(num_outputs())) return false;
    for (const int64_t index : lowered.operands) {
      if (index < 0 || index >= num_inputs()) return false;
    }
    return std::all_of(
        lowered.results.begin(), lowered.results.end(),
        [](const BoundedShape& shape) { return shape.dims.size() == shape.dynamic.size(); });
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

  absl::Status AnsweredForAnotherOp() const {
    return absl::InternalError(
        absl::StrCat("hostcall: op '", name(), "' (", type_string(), ") with ", num_inputs(),
                     " inputs and ", num_outputs(),
                     " results was lowered as one with others. This is a mistake of hostcall's."));
  }

  // Whether the results could be put into the program as constants, in the place of a call. Not for
  // every op: XLA may have to evaluate much of the program to find out whether inputs are
  // constants.
  absl::StatusOr<bool> Fold(XlaOpKernelContext* ctx, const LoweredCall& lowered) {
    std::vector<tensorflow::Tensor> inputs;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      absl::StatusOr<tensorflow::Tensor> input = ctx->ConstantInputTensor(i);
      if (!input.ok()) return false;  // it is no constant
      inputs.push_back(*std::move(input));
    }
    const FoldScope scope;
    auto results = EvaluateScriptOp(def(), inputs);
    if (!results.ok()) return results.status();
    if (!results->has_value()) return false;
    if (!Fits(lowered, **results)) return AnsweredForAnotherOp();
    for (size_t i = 0; i < (*results)->size(); ++i) {
      ctx->SetConstantOutput(static_cast<int>(i), (**results)[i]);
    }
    if (tokens_.empty()) return true;
    absl::StatusOr<xla::XlaOp> token = tokens_.Before(ctx);
    if (!token.ok()) return token.status();
    if (absl::Status set = tokens_.SetAfter(ctx, *token); !set.ok()) return set;
    return true;
  }

  absl::Status Emit(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                    const std::vector<Operand>& specs) {
    std::vector<xla::XlaOp> operands = Operands(ctx, lowered.operands, specs);
    if (!tokens_.empty()) {
      absl::StatusOr<xla::XlaOp> token = tokens_.Before(ctx);
      if (!token.ok()) return token.status();
      operands.push_back(*token);
    }
    absl::StatusOr<xla::Shape> shape = ResultShape(ctx, lowered);
    if (!shape.ok()) return shape.status();
    xla::XlaOp call = xla::CustomCall(ctx->builder(), lowered.target, operands, *shape,
                                      lowered.attributes, lowered.has_side_effect,
                                      /*output_operand_aliasing=*/{}, /*literal=*/nullptr,
                                      xla::CustomCallSchedule::SCHEDULE_NONE,
                                      xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
    SetOutputs(ctx, lowered, call);
    if (tokens_.empty()) return absl::OkStatus();
    const int64_t last = static_cast<int64_t>(shape->tuple_shapes().size()) - 1;
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, last));
  }

  // The results, then the true size of each of their bounded dimensions, then perhaps a token.
  absl::StatusOr<xla::Shape> ResultShape(XlaOpKernelContext* ctx, const LoweredCall& lowered) {
    std::vector<xla::Shape> shapes;
    size_t sizes = 0;
    for (size_t i = 0; i < lowered.results.size(); ++i) {
      xla::PrimitiveType type;
      const tensorflow::DataType dtype = ctx->expected_output_dtype(static_cast<int>(i));
      if (!tensorflow::DataTypeToPrimitiveType(dtype, &type).ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "hostcall: result ", i, " of op '", name(), "' (", type_string(), ") is of dtype ",
            tensorflow::DataTypeString(dtype),
            ", which XLA has no values for. Return it in another way, or leave the op outside of "
            "the function with jit_compile=True."));
      }
      shapes.push_back(DenseShape(UnpackedType(type), lowered.results[i].dims));
      for (const bool dynamic : lowered.results[i].dynamic) sizes += dynamic;
    }
    shapes.insert(shapes.end(), sizes, DenseShape(xla::S32, {}));
    if (!tokens_.empty()) shapes.push_back(xla::ShapeUtil::MakeTokenShape());
    return xla::ShapeUtil::MakeTupleShape(shapes);
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

  NodeTokens tokens_;
};

// Not REGISTER_XLA_OP: its registrations are carried out once, when the first function of the
// process is compiled, so that `import hostcall` after that would come too late.
#define HOSTCALL_REGISTER(op, device) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::device), ScriptOpKernel)
HOSTCALL_REGISTER("PyFunc", DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER("PyFuncStateless", DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER("EagerPyFunc", DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER("PyFunc", DEVICE_GPU_XLA_JIT);
HOSTCALL_REGISTER("PyFuncStateless", DEVICE_GPU_XLA_JIT);
HOSTCALL_REGISTER("EagerPyFunc", DEVICE_GPU_XLA_JIT);

}  // namespace
}  // namespace hostcall
