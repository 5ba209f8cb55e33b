// Result shapes of a script op, when XLA compiles.
#pragma once

#include <string>
#include <vector>

#include "callee.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/types.h"

namespace hostcall::serving {

// An op that is compiled.
struct CompiledOp {
  const tensorflow::NodeDef& node;
  std::vector<tensorflow::DataType> input_types;
  std::vector<tensorflow::DataType> output_types;
};

// Returns the shapes that the graph has, or asks a worker if the graph leaves a size open.
absl::StatusOr<Shapes> ResultShapes(const Callee& callee, const CompiledOp& op,
                                    const Shapes& inputs);

}  // namespace hostcall::serving
