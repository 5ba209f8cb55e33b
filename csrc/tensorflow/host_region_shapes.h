// Shapes of a region's results, as TensorFlow's own shape functions tell them.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace hostcall {

// Function that returns the value of a region's input, if it is known at compile time.
using KnownValue = std::function<std::optional<tensorflow::Tensor>(int input)>;

// Infers the shapes of a region's results for inputs of the given shapes. Asks `known_value` only
// for inputs whose values a shape function needs.
absl::StatusOr<std::vector<tensorflow::PartialTensorShape>> InferRegionShapes(
    const tensorflow::FunctionDef& region, int graph_def_version,
    const std::vector<tensorflow::PartialTensorShape>& inputs, const KnownValue& known_value);

// Defines `infer_region_shapes` for explanations.
void DefineRegionShapes(nanobind::module_& m);

}  // namespace hostcall
