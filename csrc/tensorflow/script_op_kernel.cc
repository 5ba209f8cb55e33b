// XLA kernel of the three script ops: an op becomes one typed-FFI custom call.
//
// Including XLA's builder makes this file slow to compile (40 s): keep unrelated code out.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "current_launch.h"
#include "lowering_kernel.h"
#include "node_tokens.h"

namespace hostcall {
namespace {

class ScriptOpKernel : public LoweringKernel {
 public:
  explicit ScriptOpKernel(tensorflow::OpKernelConstruction* ctx) : LoweringKernel(ctx, ctx->def()) {
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
  }

 private:
  absl::Status Emit(XlaOpKernelContext* ctx, const LoweredCall& lowered,
                    const std::vector<Operand>& specs) override {
    absl::StatusOr<bool> folded = lowered.foldable ? Fold(ctx, lowered) : false;
    if (!folded.ok()) return folded.status();
    return *folded ? absl::OkStatus() : EmitCall(ctx, lowered, specs);
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
    auto results = EvaluateScriptOp(node(), inputs);
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
      absl::StatusOr<xla::XlaOp> token = tokens_.Before(ctx);
      if (!token.ok()) return token.status();
      operands.push_back(*token);
    }
    auto shapes = ResultShapes(lowered);
    if (!shapes.ok()) return shapes.status();
    if (!tokens_.empty()) shapes->push_back(xla::ShapeUtil::MakeTokenShape());
    const xla::XlaOp call =
        TypedCall(ctx, lowered.target, operands, xla::ShapeUtil::MakeTupleShape(*shapes),
                  lowered.attributes, lowered.has_side_effect);
    SetOutputs(ctx, lowered, call);
    if (tokens_.empty()) return absl::OkStatus();
    const auto last = static_cast<int64_t>(shapes->size()) - 1;
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, last));
  }

  NodeTokens tokens_;
};

// Not REGISTER_XLA_OP: its registrations take effect only once, when the process compiles its first
// function, so that `import hostcall` after that would come too late.
#define HOSTCALL_REGISTER(op, device) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::device), ScriptOpKernel)
HOSTCALL_REGISTER("PyFunc", DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER("PyFuncStateless", DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER("EagerPyFunc", DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER("PyFunc", DEVICE_GPU_XLA_JIT);
HOSTCALL_REGISTER("PyFuncStateless", DEVICE_GPU_XLA_JIT);
HOSTCALL_REGISTER("EagerPyFunc", DEVICE_GPU_XLA_JIT);
#undef HOSTCALL_REGISTER

}  // namespace
}  // namespace hostcall
