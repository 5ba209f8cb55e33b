#include "result_shapes.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hostcall_attributes.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "worker/worker_client.h"
#include "worker_status.h"

namespace hostcall::serving {
namespace {

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
  WorkerCall call;
  call.op = op.node.op();
  call.token = callee.text;
  for (size_t i = 0; i < inputs.size(); ++i) {
    call.arguments.push_back({static_cast<int32_t>(op.input_types[i]), inputs[i], {}, {}});
  }
  call.result_dtypes.assign(op.output_types.begin(), op.output_types.end());
  Shapes shapes;
  const absl::Status asked = StatusOf(AskShapes(call, shapes));
  if (!asked.ok()) return asked;
  const bool is_known = std::all_of(shapes.begin(), shapes.end(), [](const auto& shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
  });
  if (is_known) return shapes;
  return absl::UnimplementedError(absl::StrCat("hostcall: the shapes of the results of ",
                                               callee.token.label,
                                               " are not known when XLA compiles"));
}

}  // namespace

absl::StatusOr<Shapes> ResultShapes(const Callee& callee, const CompiledOp& op,
                                    const Shapes& inputs) {
  if (callee.native != nullptr) return callee.NativeShapes(inputs);
  if (std::optional<Shapes> known = KnownShapes(callee, op)) return *std::move(known);
  return AskedShapes(callee, op, inputs);
}

}  // namespace hostcall::serving
