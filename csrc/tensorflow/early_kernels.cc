// XLA kernels of a script op that goes on while its program does: it becomes two custom calls
// (runtime/early_calls.h).
//
// Including XLA's builder makes this file slow to compile (40 s): keep unrelated code out.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lowering_kernel.h"

namespace hostcall {
namespace {

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
    auto shapes = ResultShapes(lowered);
    if (!shapes.ok()) return shapes.status();
    std::string attributes = lowered.attributes;
    if (attributes.empty() || attributes.back() != '}') return AnsweredForAnotherOp();
    attributes.pop_back();
    absl::StrAppend(&attributes, ", results = ", Described(*shapes), "}");
    ctx->SetOutput(
        0, TypedCall(ctx, "hostcall_start", Operands(ctx, lowered.operands, specs),
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
    auto shapes = ResultShapes(lowered);
    if (!shapes.ok()) return shapes.status();
    std::vector<xla::XlaOp> awaited;
    for (int i = inputs(); i < num_inputs(); ++i) awaited.push_back(ctx->Input(i));
    SetOutputs(ctx, lowered,
               TypedCall(ctx, "hostcall_done", awaited, xla::ShapeUtil::MakeTupleShape(*shapes),
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
        0, TypedCall(ctx, "hostcall_gate", awaited, xla::ShapeUtil::MakeScalarShape(xla::S64), "{}",
                     /*has_side_effect=*/false));
  }
};

REGISTER_KERNEL_BUILDER(Name("HostcallStart").Device(tensorflow::DEVICE_CPU_XLA_JIT), StartKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallDone").Device(tensorflow::DEVICE_CPU_XLA_JIT), DoneKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallGate").Device(tensorflow::DEVICE_CPU_XLA_JIT), GateKernel);

}  // namespace
}  // namespace hostcall
