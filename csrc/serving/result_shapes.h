// The shapes of a script op's results, when XLA compiles.
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

// By what the graph says, and where that is not enough by asking a worker.
absl::StatusOr<Shapes> ResultShapes(const Callee& callee, const CompiledOp& op,
                                    const Shapes& inputs);

}  // namespace hostcall::serving
