// Shapes of a region's results, as TensorFlow's own shape functions tell them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "functions/reachable.h"
#include "host_region.h"
#include "hostcall_attributes.h"
#include "module.h"
#include "python_hooks.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/public/version.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

using tensorflow::NodeDef;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

// Returns true for ops whose shape functions tell other shapes than their kernels return.
bool HasWrongShapes(const NodeDef& node) {
  return node.op() == "FractionalMaxPool" || node.op() == "FractionalAvgPool";
}

// Returns true for the vectors of a factorization that computes none: the kernels return scalars
// there, and the shape functions say [0].
bool IsLeftOut(const NodeDef& node, int output) {
  for (const char* name : {"compute_v", "compute_uv"}) {
    const auto wanted = node.attr().find(name);
    if (wanted != node.attr().end()) return output > 0 && !wanted->second.b();
  }
  return false;
}

// Known facts about a value of the region.
struct Value {
  PartialTensorShape shape;
  std::optional<Tensor> tensor;
  int input = -1;  // index of the region's input, or -1
};

class Inference {
 public:
  Inference(int graph_def_version, const KnownValue& known_value)
      : version_(graph_def_version), known_value_(known_value) {}

  absl::StatusOr<std::vector<PartialTensorShape>> Run(
      const tensorflow::FunctionDef& region, const std::vector<PartialTensorShape>& inputs) {
    for (int i = 0; i < region.signature().input_arg_size(); ++i) {
      values_[region.signature().input_arg(i).name()] = {inputs[i], std::nullopt, i};
    }
    for (const NodeDef& node : region.node_def()) {
      if (absl::Status visited = Visit(node); !visited.ok()) {
        return tensorflow::AttachDef(visited, node);
      }
    }
    std::vector<PartialTensorShape> results;
    for (const auto& result : region.signature().output_arg()) {
      results.push_back(values_[region.ret().at(result.name())].shape);
    }
    return results;
  }

 private:
  absl::Status Visit(const NodeDef& node) {
    if (node.op() == "Const") return VisitConstant(node);
    if (IsScriptOp(node.op())) return VisitScriptOp(node);
    const tensorflow::OpRegistrationData* op = nullptr;
    TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUp(node.op(), &op));
    std::vector<Value*> inputs;
    for (const std::string& input : node.input()) {
      if (input[0] != '^') inputs.push_back(&values_[input]);
    }
    TF_ASSIGN_OR_RETURN(std::unique_ptr<InferenceContext> context, Infer(node, *op, inputs));
    if (AskForValues(*context, inputs)) {
      TF_ASSIGN_OR_RETURN(context, Infer(node, *op, inputs));
    }
    return TakeOutputs(node, *op, *context);
  }

  absl::Status VisitConstant(const NodeDef& node) {
    Tensor tensor;
    TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(node, "value", &tensor));
    values_[absl::StrCat(node.name(), ":output:0")] = {
        PartialTensorShape(tensor.shape().dim_sizes()), tensor};
    return absl::OkStatus();
  }

  absl::Status VisitScriptOp(const NodeDef& node) {
    std::vector<PartialTensorShape> inputs;
    for (const std::string& input : node.input()) {
      if (input[0] != '^') inputs.push_back(values_[input].shape);
    }
    TF_ASSIGN_OR_RETURN(const auto shapes, ShapesOfScriptOp(node, inputs));
    for (size_t i = 0; i < shapes.size(); ++i) {
      values_[absl::StrCat(node.name(), ":output:", i)] = {shapes[i], std::nullopt};
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<InferenceContext>> Infer(const NodeDef& node,
                                                          const tensorflow::OpRegistrationData& op,
                                                          const std::vector<Value*>& inputs) const {
    std::vector<PartialTensorShape> shapes;
    std::vector<const Tensor*> tensors;
    for (const Value* input : inputs) {
      shapes.push_back(input->shape);
      tensors.push_back(input->tensor.has_value() ? &*input->tensor : nullptr);
    }
    using Handles = std::vector<std::pair<PartialTensorShape, tensorflow::DataType>>;
    std::vector<std::unique_ptr<Handles>> handles(inputs.size());
    auto context = std::make_unique<InferenceContext>(version_, node, op.op_def, shapes, tensors,
                                                      std::vector<PartialTensorShape>(), handles);
    TF_RETURN_IF_ERROR(context->construction_status());
    TF_RETURN_IF_ERROR(op.shape_inference_fn != nullptr && !HasWrongShapes(node)
                           ? context->Run(op.shape_inference_fn)
                           : context->Run(tensorflow::shape_inference::UnknownShape));
    return context;
  }

  // Looks up the values that the shape function has asked for. Returns true if any was found.
  bool AskForValues(const InferenceContext& context, const std::vector<Value*>& inputs) {
    bool found = false;
    for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
      Value& value = *inputs[i];
      const bool asked =
          context.requested_input_tensor(i) || context.requested_input_tensor_as_partial_shape(i);
      if (!asked || value.tensor.has_value() || value.input < 0) continue;
      value.tensor = known_value_(value.input);
      found |= value.tensor.has_value();
    }
    return found;
  }

  absl::Status TakeOutputs(const NodeDef& node, const tensorflow::OpRegistrationData& op,
                           InferenceContext& context) {
    tensorflow::NameRangeMap ranges;
    TF_RETURN_IF_ERROR(tensorflow::NameRangesForNode(node, op.op_def, nullptr, &ranges));
    for (const auto& [name, range] : ranges) {
      for (int i = range.first; i < range.second; ++i) {
        const std::string value = absl::StrCat(node.name(), ":", name, ":", i - range.first);
        tensorflow::TensorShapeProto proto;
        if (!IsLeftOut(node, i)) context.ShapeHandleToProto(context.output(i), &proto);
        PartialTensorShape shape(proto);
        TF_RETURN_IF_ERROR(MergeTraced(node, i, context, &shape));
        values_[value] = {shape, std::nullopt};
      }
    }
    return absl::OkStatus();
  }

  // Merges the result shape that tracing has left on some nodes.
  absl::Status MergeTraced(const NodeDef& node, int output, InferenceContext& context,
                           PartialTensorShape* shape) {
    const auto traced = node.attr().find(attributes::SHAPES);
    if (traced == node.attr().end() || output >= traced->second.list().shape_size()) {
      return absl::OkStatus();
    }
    const PartialTensorShape known(traced->second.list().shape(output));
    TF_RETURN_IF_ERROR(Merge(known, shape));
    if (node.op() != "LookupTableFindV2") return absl::OkStatus();
    // The values have the shape of the keys, followed by that of the default value, unless the keys
    // of the table are vectors, which the rank tells.
    tensorflow::TensorShapeProto keys, value;
    context.ShapeHandleToProto(context.input(1), &keys);
    context.ShapeHandleToProto(context.input(2), &value);
    const PartialTensorShape found =
        PartialTensorShape(keys).Concatenate(PartialTensorShape(value));
    if (known.dims() < 0 || found.dims() != known.dims()) return absl::OkStatus();
    return Merge(found, shape);
  }

  static absl::Status Merge(const PartialTensorShape& other, PartialTensorShape* shape) {
    const PartialTensorShape before = *shape;
    return before.MergeWith(other, shape);
  }

  const int version_;
  const KnownValue& known_value_;
  std::unordered_map<std::string, Value> values_;  // by the values' names in FunctionDefs
};

}  // namespace

absl::StatusOr<std::vector<PartialTensorShape>> InferRegionShapes(
    const tensorflow::FunctionDef& region, int graph_def_version,
    const std::vector<PartialTensorShape>& inputs, const KnownValue& known_value) {
  return Inference(graph_def_version, known_value).Run(region, inputs);
}

void DefineRegionShapes(nb::module_& m) {
  m.def(
      "infer_region_shapes",
      [](const nb::bytes& function,
         const std::vector<std::optional<std::vector<int64_t>>>& shapes) {
        tensorflow::FunctionDef region;
        if (!region.ParseFromArray(function.c_str(), static_cast<int>(function.size()))) {
          throw nb::value_error("hostcall: this is not a FunctionDef");
        }
        std::vector<PartialTensorShape> inputs;
        for (const auto& shape : shapes) {
          inputs.push_back(shape.has_value() ? PartialTensorShape(*shape) : PartialTensorShape());
        }
        const auto unknown = [](int) { return std::nullopt; };
        const auto inferred = InferRegionShapes(region, TF_GRAPH_DEF_VERSION, inputs, unknown);
        if (!inferred.ok()) return false;
        for (int i = 0; i < region.signature().output_arg_size(); ++i) {
          if (!IsReference(region.signature().output_arg(i).type()) &&
              !(*inferred)[i].IsFullyDefined()) {
            return false;
          }
        }
        return true;
      },
      nb::arg("function"), nb::arg("shapes"),
      "Return whether the shapes of all results of a region, a serialized FunctionDef, follow from "
      "those of its inputs, lists or None.");
}

}  // namespace hostcall
