// Op that keeps a loop or a branch with side effects in its place among other calls.
//
// XLA's programs for a CPU wait for what a thunk reads and writes. A call writes its token, so that
// the next one waits. TensorFlow's bridge wraps the tokens of loops and branches in an `after-all`,
// which has a token of its own that nothing writes: XLA would run the calls on both sides in any
// order. So loops and branches also carry an integer, which these barriers write when their token
// is there (_compiler/one_program/ordering.py).
#include <cstdint>

#include "functions/typed_call.h"
#include "module.h"
#include "node_tokens.h"
#include "runtime/frame.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

constexpr char kTarget[] = "hostcall_order";

REGISTER_OP("HostcallOrder")
    .Input("input: int32")
    .Output("output: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

class OrderXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit OrderXlaKernel(tensorflow::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, tokens_.Read(ctx));
    is_cpu_ = ctx->device_type() == tensorflow::DeviceType(tensorflow::DEVICE_CPU_XLA_JIT);
  }

  void Compile(tensorflow::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Emit(ctx)); }

 private:
  absl::Status Emit(tensorflow::XlaOpKernelContext* ctx) {
    if (tokens_.empty()) {  // a program that is only shown
      ctx->SetOutput(0, ctx->Input(0));
      return absl::OkStatus();
    }
    TF_ASSIGN_OR_RETURN(const xla::XlaOp token, tokens_.Before(ctx));
    if (!is_cpu_) {  // a stream runs one kernel after another
      ctx->SetOutput(0, ctx->Input(0));
      return tokens_.SetAfter(ctx, token);
    }
    const xla::Shape results = xla::ShapeUtil::MakeTupleShape(
        {xla::ShapeUtil::MakeScalarShape(xla::S32), xla::ShapeUtil::MakeTokenShape()});
    const xla::XlaOp call = TypedCall(ctx->builder(), kTarget, {ctx->Input(0), token}, results,
                                      /*attributes=*/"", /*has_side_effect=*/true);
    ctx->SetOutput(0, xla::GetTupleElement(call, 0));
    return tokens_.SetAfter(ctx, xla::GetTupleElement(call, 1));
  }

  NodeTokens tokens_;
  bool is_cpu_ = true;
};

REGISTER_KERNEL_BUILDER(Name("HostcallOrder").Device(tensorflow::DEVICE_CPU_XLA_JIT),
                        OrderXlaKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallOrder").Device(tensorflow::DEVICE_GPU_XLA_JIT),
                        OrderXlaKernel);

Result Pass(const XLA_FFI_CallFrame& frame) {
  const XLA_FFI_Buffer& from = *RawBuffers(frame.args)[0];
  const XLA_FFI_Buffer& to = *RawBuffers(frame.rets)[0];
  *static_cast<int32_t*>(to.data) = *static_cast<const int32_t*>(from.data);
  return {};
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallOrderHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Pass);
}
