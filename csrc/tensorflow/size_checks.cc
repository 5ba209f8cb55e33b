// Ops that pass values on, and that XLA compiles to nothing. Once XLA knows all shapes, they refuse
// values that it would get wrong silently, or end the process for. _compiler/sizes/checks.py and
// _compiler/control_flow.py add them.
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "functions/fallback_kernel.h"
#include "host_region.h"
#include "hostcall_xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "xla/shape_util.h"

namespace hostcall {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using tensorflow::shape_inference::InferenceContext;

absl::Status ShapesOfInputs(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

// Results of a conditional, or of another node that may bound their sizes. `bounded` holds the
// (result, dimension)s that may be bounded.
REGISTER_OP("HostcallKnownSizes")
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 1")
    .Attr("node: string")
    .Attr("bounded: list(int) = []")
    .SetShapeFn(ShapesOfInputs);

// The list that the node `user` reads elements of type `dtype` from, or writes them to. XLA itself
// refuses elements of another shape.
REGISTER_OP("HostcallList")
    .Input("list: variant")
    .Output("output: variant")
    .Attr("dtype: type")
    .Attr("user: string")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// Kernel of both ops if TensorFlow's kernels run a function.
class PassKernel : public tensorflow::OpKernel {
 public:
  explicit PassKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {}
  void Compute(tensorflow::OpKernelContext* ctx) override {
    for (int i = 0; i < num_outputs(); ++i) ctx->set_output(i, ctx->input(i));
  }
  bool IsExpensive() override { return false; }
};

class KnownSizesKernel : public tensorflow::XlaOpKernel {
 public:
  explicit KnownSizesKernel(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("node", &node_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("bounded", &bounded_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    for (int i = 0; i < num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      OP_REQUIRES_OK(ctx, shape.status());
      for (size_t dim = 0; dim < shape->dimensions().size(); ++dim) {
        if (!shape->is_dynamic_dimension(dim)) continue;
        OP_REQUIRES(ctx, MayBeBounded(i, dim),
                    RefusalOfOurs(absl::StrCat(
                        "hostcall: the branches of node `", node_,
                        "` return different sizes, which XLA may get wrong: it makes ",
                        xla::ShapeUtil::HumanString(*shape),
                        " of them. Let the branches return "
                        "equal shapes, or let the function be partitioned: with route='auto'.")));
        OP_REQUIRES(ctx, shape->dimensions(dim) != 1,
                    RefusalOfOurs(absl::StrCat("hostcall: a size of node `", node_,
                                               "` is at most 1, which XLA takes for 1 in some "
                                               "ops. Let the function be partitioned: with "
                                               "route='auto'.")));
      }
      ctx->SetOutput(i, ctx->Input(i));
    }
  }

 private:
  bool MayBeBounded(int64_t result, int64_t dim) const {
    for (size_t i = 0; i + 1 < bounded_.size(); i += 2) {
      if (bounded_[i] == result && bounded_[i + 1] == dim) return true;
    }
    return false;
  }

  std::string node_;
  std::vector<int64_t> bounded_;
};

class ListKernel : public tensorflow::XlaOpKernel {
 public:
  explicit ListKernel(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("user", &user_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    absl::StatusOr<xla::Shape> list = ctx->builder()->GetShape(ctx->Input(0));
    OP_REQUIRES_OK(ctx, list.status());
    // XLA has an array for a list without known elements, and a longer tuple for nested lists.
    if (list->IsTuple() && list->tuple_shapes().size() == 2) {
      OP_REQUIRES_OK(ctx, CheckType(list->tuple_shapes(0)));
    }
    ctx->SetTensorListOutput(0, ctx->Input(0));
  }

 private:
  absl::Status CheckType(const xla::Shape& buffer) const {
    xla::PrimitiveType type;
    absl::Status known = tensorflow::DataTypeToPrimitiveType(dtype_, &type);
    if (!known.ok() || type == buffer.element_type()) return known;
    return RefusalOfOurs(absl::StrCat("hostcall: node `", user_, "` takes elements of dtype ",
                                      tensorflow::DataTypeString(dtype_),
                                      " for those of a list that has others"));
  }

  tensorflow::DataType dtype_;
  std::string user_;
};

// Results of a conditional's branches. If their shapes differ, XLA looks for the largest of each
// result. A token has no shape, so the process ends. Tracing leaves most sizes open, so that only
// this check knows them.
// `conditional` is the name of a node. `key` identifies one conditional of the program, which has
// this many `branches`.
REGISTER_OP("HostcallBranchResults")
    .Input("inputs: T")
    .Output("outputs: T")
    .Attr("T: list(type) >= 1")
    .Attr("conditional: string")
    .Attr("key: string")
    .Attr("branches: int >= 1")
    .SetShapeFn(ShapesOfInputs);

// Results of one conditional's branches in one compilation. XLA compiles the branches in turn, and
// all of them again if a function with a conditional is called for other shapes.
class Branches : public tensorflow::ResourceBase {
 public:
  // Returns the shapes of an earlier branch if those of the next branch differ, else none.
  std::vector<xla::Shape> DifferFrom(std::vector<xla::Shape> shapes, int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (seen_++ % count == 0) {
      first_ = std::move(shapes);
      return {};
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (!xla::Shape::Equal().IgnoreLayout()(shapes[i], first_[i])) return first_;
    }
    return {};
  }

  std::string DebugString() const override { return "the branches of a conditional"; }

 private:
  std::mutex mutex_;
  int64_t seen_ = 0;
  std::vector<xla::Shape> first_;
};

std::string ToText(const std::vector<xla::Shape>& shapes) {
  return absl::StrJoin(shapes, ", ", [](std::string* text, const xla::Shape& shape) {
    absl::StrAppend(text, xla::ShapeUtil::HumanString(shape));
  });
}

class BranchResultsKernel : public tensorflow::XlaOpKernel {
 public:
  explicit BranchResultsKernel(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("conditional", &conditional_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("branches", &branches_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    std::vector<xla::Shape> shapes;
    for (int i = 0; i < num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      OP_REQUIRES_OK(ctx, shape.status());
      shapes.push_back(*std::move(shape));
      ctx->SetOutput(i, ctx->Input(i));
    }
    // The resource lives as long as the compilation.
    tensorflow::ResourceMgr* manager = ctx->op_kernel_context()->resource_manager();
    Branches* branches = nullptr;
    OP_REQUIRES_OK(ctx, manager->LookupOrCreate<Branches>(  //
                            "hostcall", key_, &branches, [](Branches** created) {
                              *created = new Branches();
                              return absl::OkStatus();
                            }));
    const tensorflow::core::ScopedUnref unref(branches);
    const std::vector<xla::Shape> others = branches->DifferFrom(shapes, branches_);
    OP_REQUIRES(
        ctx, others.empty(),
        RefusalOfOurs(absl::StrCat(
            "hostcall: the branches of node `", conditional_, "` return different shapes (",
            ToText(others), " and ", ToText(shapes),
            "), and hold calls with side effects. XLA ends the process for that. Let the branches "
            "return equal shapes, call with stateful=False, or let the function be partitioned: "
            "with route='auto'.")));
  }

 private:
  std::string conditional_;
  std::string key_;
  int64_t branches_ = 1;
};

// The operands of an op whose XLA kernel ends the process for some constants. `op` is a serialized
// FunctionDef of that op alone. The op waits for this one, which refuses what the op's shape
// function finds wrong.
REGISTER_OP("HostcallGuard")
    .Input("operands: T")
    .Attr("T: list(type) >= 1")
    .Attr("op: string")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

class GuardKernel : public tensorflow::XlaOpKernel {
 public:
  explicit GuardKernel(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    std::string serialized;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("op", &serialized));
    OP_REQUIRES(ctx, op_.ParseFromString(serialized),
                absl::InternalError("hostcall: the op of a guard does not parse"));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    std::vector<tensorflow::PartialTensorShape> shapes;
    for (int i = 0; i < num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = ctx->InputXlaShape(i);
      OP_REQUIRES_OK(ctx, shape.status());
      std::vector<int64_t> sizes(shape->dimensions().begin(), shape->dimensions().end());
      for (size_t dim = 0; dim < sizes.size(); ++dim) {
        if (shape->is_dynamic_dimension(static_cast<int>(dim))) sizes[dim] = -1;
      }
      shapes.emplace_back(sizes);
    }
    const auto known_value = [ctx](int input) -> std::optional<tensorflow::Tensor> {
      absl::StatusOr<tensorflow::Tensor> value = ctx->ConstantInputTensor(input);
      return value.ok() ? std::optional(*std::move(value)) : std::nullopt;
    };
    const auto inferred =
        InferRegionShapes(op_, ctx->function_library()->graph_def_version(), shapes, known_value);
    OP_REQUIRES(ctx, inferred.ok(),
                RefusalOfOurs(absl::StrCat("hostcall: node `", op_.node_def(0).name(),
                                           "`: ", inferred.status().message())));
  }

 private:
  tensorflow::FunctionDef op_;
};

REGISTER_KERNEL_BUILDER(Name("HostcallGuard").Device(tensorflow::DEVICE_DEFAULT), PassKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallKnownSizes").Device(tensorflow::DEVICE_DEFAULT), PassKernel);
REGISTER_KERNEL_BUILDER(Name("HostcallList").Device(tensorflow::DEVICE_DEFAULT), PassKernel);

#define HOSTCALL_REGISTER(device)                                                         \
  REGISTER_KERNEL_BUILDER(Name("HostcallGuard").Device(tensorflow::device), GuardKernel); \
  REGISTER_KERNEL_BUILDER(Name("HostcallKnownSizes").Device(tensorflow::device),          \
                          KnownSizesKernel);                                              \
  REGISTER_KERNEL_BUILDER(Name("HostcallList").Device(tensorflow::device), ListKernel);   \
  REGISTER_KERNEL_BUILDER(Name("HostcallBranchResults").Device(tensorflow::device),       \
                          BranchResultsKernel)
HOSTCALL_REGISTER(DEVICE_CPU_XLA_JIT);
HOSTCALL_REGISTER(DEVICE_GPU_XLA_JIT);
#undef HOSTCALL_REGISTER

}  // namespace
}  // namespace hostcall
