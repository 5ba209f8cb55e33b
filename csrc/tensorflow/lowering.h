// The Python functions that decide, and their answers in C++.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace hostcall {

// A shape as XLA has it when it compiles: for a dynamic dimension, `dims` holds the bound.
struct BoundedShape {
  std::vector<int64_t> dims;
  std::vector<bool> dynamic;
};

struct Operand {
  int dtype;  // a tensorflow::DataType
  BoundedShape shape;
};

// What to emit for one script op.
struct LoweredCall {
  std::string attributes;  // of the custom call: an MLIR dictionary
  bool has_side_effect = false;
  std::vector<int64_t> operands;  // the op's inputs that the call takes
  std::vector<BoundedShape> results;
};

struct RewrittenFunction {
  tensorflow::FunctionDefLibrary library;
  std::string name;
};

// True between hostcall.enable() and hostcall.disable().
bool IsEnabled();

// Asks Python how to lower a script op. The status says, in prose, why it cannot be.
absl::StatusOr<LoweredCall> LowerScriptOp(const tensorflow::NodeDef& node,
                                          const std::vector<Operand>& operands);

// Asks Python to order the side effects of `function` and of all that it calls.
absl::StatusOr<RewrittenFunction> OrderSideEffects(const tensorflow::FunctionDefLibrary& library,
                                                   const std::string& function);

// Defines the Python side of the above.
void DefineLowering(nanobind::module_& m);

}  // namespace hostcall
