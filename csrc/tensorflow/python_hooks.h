// The bridge to Python: the functions there that decide, and their answers in C++.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor.h"

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
  std::string target;      // of the custom call
  std::string attributes;  // of the custom call: an MLIR dictionary
  bool has_side_effect = false;
  std::vector<int64_t> operands;  // the op's inputs that the call takes
  std::vector<BoundedShape> results;
  bool foldable = false;  // whether the results may be constants of the program, if all inputs are
};

// What takes the place of a must-compile function.
struct RewrittenFunction {
  std::string library;  // the new functions: a serialized FunctionDefLibrary
  std::string name;
  bool partitioned = false;          // whether it runs on the host, and compiled clusters within it
  std::vector<std::string> regions;  // the names of their functions, which are in the library
  bool added = false;                // whether the eager context was given them all just now
  bool sizes_vary = false;           // whether its arguments come in sizes that a run has found
};

// Where a function runs.
struct Where {
  std::string device;   // the function's own
  bool others = false;  // whether parts of it run on others, too
};

// True between hostcall.enable() and hostcall.disable().
bool IsEnabled();

// Asks Python how to lower a script op. The message of the status says why it cannot be.
absl::StatusOr<LoweredCall> LowerScriptOp(const tensorflow::NodeDef& node,
                                          const std::vector<Operand>& operands);

// Has Python call the function of a script op for inputs that are known when XLA compiles. Nothing
// where that gives no results to put into the program: the op has to be a call, then.
absl::StatusOr<std::optional<std::vector<tensorflow::Tensor>>> EvaluateScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::Tensor>& inputs);

// Asks Python for the shapes of the results of a script op in a region, as far as they are known.
absl::StatusOr<std::vector<tensorflow::PartialTensorShape>> ShapesOfScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::PartialTensorShape>& inputs);

// Asks Python for what takes the place of `function`. `library` is a serialized FunctionDefLibrary
// with all that it calls, `refusal` what XLA has said of the function, or empty; `whole` says
// whether it may become one program, with regions.
absl::StatusOr<RewrittenFunction> RewriteFunction(const std::string& library,
                                                  const std::string& function, const Where& where,
                                                  const std::string& refusal, bool whole);

// A node that XLA has no kernel for.
struct MissingKernel {
  std::string function;
  std::string node;
  std::string op;
};

// Asks Python for the nodes that XLA refuses `function` for; none where that shall be an error. The
// arguments are as above.
absl::StatusOr<std::vector<MissingKernel>> MissingKernels(const std::string& library,
                                                          const std::string& function,
                                                          const std::string& device);

// Has Python log what has become of a function that XLA refuses: it has come to that.
void Announce(const std::string& function);

// Asks Python for a function that does what a cluster does, by TensorFlow's kernels and with the
// same promises to the Python functions that it calls. The arguments are as above.
absl::StatusOr<RewrittenFunction> PlainFunction(const std::string& library,
                                                const std::string& function, const Where& where);

// Tells Python that no more signatures of a function are compiled.
void TellOutgrown(const std::string& function);

// Defines the Python side of the above.
void DefinePythonHooks(nanobind::module_& m);

}  // namespace hostcall
