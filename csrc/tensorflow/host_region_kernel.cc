// XLA kernel of a region: a typed-FFI custom call.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "functions/fallback_kernel.h"
#include "functions/typed_call.h"
#include "host_region.h"
#include "node_tokens.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/function.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

using tensorflow::PartialTensorShape;
using tensorflow::XlaOpKernelContext;

class RegionXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit RegionXlaKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("region", &region_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("index", &index_));
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    const tensorflow::FunctionDef* function =
        ctx->function_library()->GetFunctionLibraryDefinition()->Find(region_);
    OP_REQUIRES(ctx, function != nullptr,
                absl::InternalError(absl::StrCat("hostcall: there is no region ", region_)));
    absl::StatusOr<std::vector<xla::Shape>> results = ResultShapes(ctx, *function);
    OP_REQUIRES_OK(ctx, results.status());
    OP_REQUIRES_OK(ctx, Emit(ctx, *std::move(results)));
  }

 private:
  // Makes a refusal, for which hostcall partitions the function instead.
  absl::Status Refusal(const std::string& why) const {
    return RefusalOfOurs(
        absl::StrCat("hostcall: ops on the host cannot be called from one program: ", why));
  }

  absl::StatusOr<std::vector<xla::Shape>> ResultShapes(XlaOpKernelContext* ctx,
                                                       const tensorflow::FunctionDef& function) {
    std::vector<PartialTensorShape> inputs;
    for (int i = 0; i < function.signature().input_arg_size(); ++i) {
      if (IsReference(function.signature().input_arg(i).type())) {
        inputs.emplace_back();
        continue;
      }
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(i + 1));
      if (!shape.is_static()) return Refusal("the size of an input is only bounded");
      inputs.emplace_back(shape.dimensions());
    }
    const auto known_value = [ctx](int input) -> std::optional<tensorflow::Tensor> {
      absl::StatusOr<tensorflow::Tensor> value = ctx->ConstantInputTensor(input + 1);
      return value.ok() ? std::optional(*std::move(value)) : std::nullopt;
    };
    TF_ASSIGN_OR_RETURN(const auto inferred,
                        InferRegionShapes(function, ctx->function_library()->graph_def_version(),
                                          inputs, known_value));
    std::vector<xla::Shape> shapes;
    for (int i = 0; i < function.signature().output_arg_size(); ++i) {
      TF_ASSIGN_OR_RETURN(shapes.emplace_back(),
                          ResultShape(function.signature().output_arg(i), inferred[i]));
    }
    return shapes;
  }

  absl::StatusOr<xla::Shape> ResultShape(const tensorflow::OpDef::ArgDef& result,
                                         const PartialTensorShape& inferred) const {
    if (IsReference(result.type())) return xla::ShapeUtil::MakeScalarShape(xla::S64);
    xla::PrimitiveType type;
    if (!tensorflow::DataTypeToPrimitiveType(result.type(), &type).ok() || type == xla::S4 ||
        type == xla::U4 || type == xla::S2 || type == xla::U2) {
      return Refusal(
          absl::StrCat("a result is of dtype ", tensorflow::DataTypeString(result.type())));
    }
    if (!inferred.IsFullyDefined()) {
      return Refusal(absl::StrCat("the shape of a result is not known when XLA compiles: ",
                                  inferred.DebugString()));
    }
    return xla::ShapeUtil::MakeShapeWithDescendingLayout(type, inferred.dim_sizes());
  }

  absl::Status Emit(XlaOpKernelContext* ctx, std::vector<xla::Shape> results) {
    std::vector<xla::XlaOp> operands;
    for (int i = 0; i < num_inputs(); ++i) operands.push_back(ctx->Input(i));
    if (!tokens_.empty()) {
      TF_ASSIGN_OR_RETURN(operands.emplace_back(), tokens_.Before(ctx));
      results.push_back(xla::ShapeUtil::MakeTokenShape());
    }
    // An error is an effect: XLA must not move a region out of a loop or a branch that may not run.
    const xla::XlaOp call = TypedCall(ctx->builder(), "hostcall_region", operands,
                                      xla::ShapeUtil::MakeTupleShape(results),
                                      absl::StrCat("{region = ", index_, " : i64}"),
                                      /*has_side_effect=*/true);
    for (int i = 0; i < num_outputs(); ++i) ctx->SetOutput(i, xla::GetTupleElement(call, i));
    if (tokens_.empty()) return absl::OkStatus();
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, num_outputs()));
  }

  std::string region_;
  int64_t index_ = 0;
  NodeTokens tokens_;
};

#define HOSTCALL_REGISTER(op) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU_XLA_JIT), RegionXlaKernel)
HOSTCALL_REGISTER("HostcallRegion");
HOSTCALL_REGISTER("HostcallStatelessRegion");
#undef HOSTCALL_REGISTER

}  // namespace
}  // namespace hostcall
