// Kernels of the `Where` nodes that _compiler/sizes/checks.py labels, for programs on a CPU.
//
// XLA's own kernel computes a prefix sum and scatters each place, which takes up to five times as
// long as TensorFlow's kernel. These programs call a function that looks at each element once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "functions/typed_call.h"
#include "functions/wrapped_kernel.h"
#include "hostcall_xla_op_kernel.h"
#include "module.h"
#include "runtime/frame.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

constexpr char kWhereTarget[] = "hostcall_where";
constexpr char kLabel[] = "hostcall";
constexpr int kMostDimensions = 8;  // that TensorFlow's kernel takes

class WhereXlaKernel : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(tensorflow::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Emit(ctx)); }

 private:
  static absl::Status Emit(tensorflow::XlaOpKernelContext* ctx) {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(0));
    const auto rank = static_cast<int64_t>(shape.dimensions().size());
    if (rank < 1 || rank > kMostDimensions) {
      return absl::UnimplementedError("hostcall: tf.where takes one to eight dimensions");
    }
    xla::XlaOp input = ctx->Input(0);
    int64_t elements = 1;
    // XLA passes the padded buffer of a bounded operand, so its sizes are operands, too.
    std::vector<xla::XlaOp> operands(1);
    for (int64_t dim = 0; dim < rank; ++dim) {
      operands.push_back(xla::GetDimensionSize(ctx->Input(0), dim));
      if (shape.is_dynamic_dimension(dim)) input = xla::RemoveDynamicDimension(input, dim);
      elements *= shape.dimensions(dim);
    }
    if (elements == 0) {  // XLA has no place for the true size of a result without elements
      ctx->SetOutput(
          0, xla::Zeros(ctx->builder(), xla::ShapeUtil::MakeShape(xla::S64, {elements, rank})));
      return absl::OkStatus();
    }
    operands[0] = xla::Ne(input, xla::ZerosLike(input));
    const xla::Shape results = xla::ShapeUtil::MakeTupleShape(
        {xla::ShapeUtil::MakeShapeWithDescendingLayout(xla::S64, {elements, rank}),
         xla::ShapeUtil::MakeScalarShape(xla::S32)});
    const xla::XlaOp call = TypedCall(ctx->builder(), kWhereTarget, operands, results,
                                      /*attributes=*/"", /*has_side_effect=*/false);
    ctx->SetOutput(
        0, xla::SetDimensionSize(xla::GetTupleElement(call, 0), xla::GetTupleElement(call, 1), 0));
    return absl::OkStatus();
  }
};

// TensorFlow's own kernel, for nodes that TensorFlow runs.
class WhereKernel : public tensorflow::OpKernel {
 public:
  explicit WhereKernel(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CreateStockKernel(ctx, &stock_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, ComputeWith(ParamsOf(*ctx), stock_.get(), ctx));
  }

 private:
  KernelPtr stock_;
};

REGISTER_KERNEL_BUILDER(Name("Where").Device(tensorflow::DEVICE_CPU_XLA_JIT).Label(kLabel),
                        WhereXlaKernel);
REGISTER_KERNEL_BUILDER(Name("Where").Device(tensorflow::DEVICE_CPU).Label(kLabel), WhereKernel);

// Writes the places of a mask's elements that are true, and zeros behind them; returns their count.
template <int kRank>
int64_t Find(const RawBuffers& operands, int64_t* places) {
  const XLA_FFI_Buffer& mask = *operands[0];
  std::array<int64_t, kRank> sizes, strides, place{};
  bool is_over = false;
  for (int dim = kRank - 1; dim >= 0; --dim) {
    const auto* size = static_cast<const int32_t*>(operands[dim + 1]->data);
    sizes[dim] = CheckedSize(*size, mask.dims[dim], "tf.where");
    strides[dim] = dim == kRank - 1 ? 1 : strides[dim + 1] * mask.dims[dim + 1];
    is_over |= sizes[dim] == 0;
  }
  int64_t* next = places;
  while (!is_over) {
    const uint8_t* row = static_cast<const uint8_t*>(mask.data);
    for (int dim = 0; dim + 1 < kRank; ++dim) row += place[dim] * strides[dim];
    // A branch for each element would be mispredicted often. There is room for one more place
    // until the last element, since no more were found than were looked at.
    for (int64_t& i = place[kRank - 1] = 0; i < sizes[kRank - 1]; ++i) {
      std::copy(place.begin(), place.end(), next);
      next += row[i] ? kRank : 0;
    }
    int dim = kRank - 2;
    while (dim >= 0 && ++place[dim] == sizes[dim]) place[dim--] = 0;
    is_over = dim < 0;
  }
  return (next - places) / kRank;
}

Result FindPlaces(const XLA_FFI_CallFrame& frame) {
  using Finder = int64_t (*)(const RawBuffers&, int64_t*);
  static constexpr std::array<Finder, kMostDimensions> kFinders = {
      Find<1>, Find<2>, Find<3>, Find<4>, Find<5>, Find<6>, Find<7>, Find<8>};
  const RawBuffers operands(frame.args), results(frame.rets);
  const int64_t rank = operands[0]->rank;
  auto* places = static_cast<int64_t*>(results[0]->data);
  const int64_t found = kFinders.at(rank - 1)(operands, places);
  std::memset(places + found * rank, 0, (results[0]->dims[0] - found) * rank * sizeof(int64_t));
  *static_cast<int32_t*>(results[1]->data) = static_cast<int32_t>(found);
  return {};
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallWhereHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::FindPlaces);
}
