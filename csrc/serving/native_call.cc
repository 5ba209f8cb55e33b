// Keep unrelated code out of this file: including the definitions of XLA's contexts makes it slow
// to compile.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "callee.h"
#include "compat/contexts.h"
#include "compat/xla_api.h"
#include "runtime/failure.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "xla/tsl/concurrency/async_value_ref.h"

namespace hostcall::serving {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Tensors as buffers of XLA's FFI.
class Buffers {
 public:
  absl::Status Add(const Tensor& tensor) {
    xla::PrimitiveType type;
    absl::Status known = tensorflow::DataTypeToPrimitiveType(tensor.dtype(), &type);
    if (!known.ok() || type == xla::S4 || type == xla::U4) {
      return absl::InvalidArgumentError(absl::StrCat("hostcall: native code cannot have a ",
                                                     tensorflow::DataTypeString(tensor.dtype())));
    }
    const auto sizes = tensor.shape().dim_sizes();
    std::vector<int64_t>& shape = shapes_.emplace_back(sizes.begin(), sizes.end());
    XLA_FFI_Buffer buffer{};
    buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffer.dtype = static_cast<XLA_FFI_DataType>(type);
    buffer.data = tensor.NumElements() == 0 ? nullptr : tensor.data();
    buffer.rank = static_cast<int64_t>(shape.size());
    buffer.dims = shape.data();  // stays there when `shapes_` grows
    buffers_.push_back(std::make_unique<XLA_FFI_Buffer>(buffer));
    pointers_.push_back(buffers_.back().get());
    arg_types_.push_back(XLA_FFI_ArgType_BUFFER);
    ret_types_.push_back(XLA_FFI_RetType_BUFFER);
    return absl::OkStatus();
  }

  const Shapes& shapes() const { return shapes_; }

  // Return the two sides of a call frame. They live no longer than this object.
  XLA_FFI_Args args() {
    return {XLA_FFI_Args_STRUCT_SIZE, nullptr, size(), arg_types_.data(), pointers_.data()};
  }
  XLA_FFI_Rets rets() {
    return {XLA_FFI_Rets_STRUCT_SIZE, nullptr, size(), ret_types_.data(), pointers_.data()};
  }

 private:
  int64_t size() const { return static_cast<int64_t>(pointers_.size()); }

  Shapes shapes_;
  std::vector<std::unique_ptr<XLA_FFI_Buffer>> buffers_;
  std::vector<void*> pointers_;
  std::vector<XLA_FFI_ArgType> arg_types_;
  std::vector<XLA_FFI_RetType> ret_types_;
};

absl::Status AllocateOutputs(OpKernelContext* ctx, const Shapes& shapes, Buffers& buffers) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape(shapes[i], &shape));
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(static_cast<int>(i), shape, &output));
    TF_RETURN_IF_ERROR(buffers.Add(*output));
  }
  return absl::OkStatus();
}

// Returns the status of a call. Waits for the call if it has not ended yet.
absl::Status StatusOf(NativeOutcome outcome) {
  const std::unique_ptr<XLA_FFI_Error> error(outcome.error);
  const std::unique_ptr<XLA_FFI_Future> future(outcome.future);
  if (error != nullptr) return error->status;
  if (future == nullptr) return absl::OkStatus();
  tsl::BlockUntilReady(future->async_value);
  return future->async_value.IsError() ? future->async_value.GetError() : absl::OkStatus();
}

}  // namespace

absl::Status CallNative(const Callee& callee, OpKernelContext* ctx) {
  Buffers operands, results;
  for (int i = 0; i < ctx->num_inputs(); ++i) TF_RETURN_IF_ERROR(operands.Add(ctx->input(i)));
  TF_ASSIGN_OR_RETURN(const Shapes shapes, callee.NativeShapes(operands.shapes()));
  if (shapes.size() != static_cast<size_t>(ctx->num_outputs())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hostcall: the native function ", callee.token.label, " has ", shapes.size(),
        " results, and is called by an op with ", ctx->num_outputs(), ". The graph was altered."));
  }
  TF_RETURN_IF_ERROR(AllocateOutputs(ctx, shapes, results));
  compat::HandlerContext context{};
  context.backend_context = compat::HandlerContext::CpuContext{&ctx->eigen_cpu_device()};
  try {
    XLA_FFI_CallFrame frame{};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = xla::ffi::GetXlaFfiApi();
    frame.ctx = compat::ForHandlers(&context);
    frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args = operands.args();
    frame.rets = results.rets();
    frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
    return StatusOf(callee.native->Call(NativeFrame(frame)));
  } catch (const Failure& failure) {
    return absl::Status(static_cast<absl::StatusCode>(failure.code()), failure.what());
  }
}

}  // namespace hostcall::serving
