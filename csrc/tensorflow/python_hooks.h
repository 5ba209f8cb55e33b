// Bridge to Python: the functions there that decide, and their answers in C++.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.h"
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

// Custom call to emit for one script op.
struct LoweredCall {
  std::string target;      // of the custom call
  std::string attributes;  // of the custom call: an MLIR dictionary
  bool has_side_effect = false;
  std::vector<int64_t> operands;  // the op's inputs that the call takes
  std::vector<BoundedShape> results;
  bool foldable = false;  // true if the results may be constants when all inputs are
};

// Replacement of a must-compile function.
struct RewrittenFunction {
  std::string library;  // the new functions: a serialized FunctionDefLibrary
  std::string name;
  bool partitioned = false;          // true if it runs on the host, with compiled clusters in it
  std::vector<std::string> regions;  // names of their functions, which are in the library
  bool added = false;                // true if the eager context has just got them all
  bool sizes_vary = false;           // true if its arguments have sizes found at run time
};

// Place where a function runs.
struct Where {
  std::string device;   // the function's own
  bool others = false;  // true if parts of it run on others, too
};

// Scope in which Python rewrites functions of a library, on this thread.
class RewriteScope {
 public:
  explicit RewriteScope(const tensorflow::FunctionLibraryDefinition& library);
  ~RewriteScope();
  RewriteScope(const RewriteScope&) = delete;
  RewriteScope& operator=(const RewriteScope&) = delete;

 private:
  const tensorflow::FunctionLibraryDefinition* const outer_;
};

// Returns the frames of the user's code that made a node of a function, in TensorFlow's format; ""
// if they are unknown.
std::string TraceOf(const std::string& function, const std::string& node,
                    const tensorflow::FunctionLibraryDefinition& library);

// Returns true between hostcall.enable() and hostcall.disable().
bool IsEnabled();

// Asks Python how to lower a script op. The status says why it cannot be lowered.
absl::StatusOr<LoweredCall> LowerScriptOp(const tensorflow::NodeDef& node,
                                          const std::vector<Operand>& operands);

// Has Python call the function of a script op at compile time, for known inputs. Returns nullopt if
// that gives no results to put into the program: the op then has to be a call.
absl::StatusOr<std::optional<std::vector<tensorflow::Tensor>>> EvaluateScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::Tensor>& inputs);

// Asks Python for the shapes of the results of a script op in a region, as far as they are known.
absl::StatusOr<std::vector<tensorflow::PartialTensorShape>> ShapesOfScriptOp(
    const tensorflow::NodeDef& node, const std::vector<tensorflow::PartialTensorShape>& inputs);

// Asks Python for the replacement of `function`. `library` is a serialized FunctionDefLibrary with
// all that it calls. `refusal` is XLA's message on the function, or empty. `whole` allows it to
// become one program, with regions.
absl::StatusOr<RewrittenFunction> RewriteFunction(const std::string& library,
                                                  const std::string& function, const Where& where,
                                                  const std::string& refusal, bool whole);

// A node that XLA has no kernel for.
struct MissingKernel {
  std::string function;
  std::string node;
  std::string op;
};

// Asks Python for the nodes for which XLA refuses `function`; none if that must be an error. The
// arguments are as above.
absl::StatusOr<std::vector<MissingKernel>> MissingKernels(const std::string& library,
                                                          const std::string& function,
                                                          const std::string& device);

// Has Python log the replacement of a function that XLA refuses, once it is in use.
void Announce(const std::string& function);

// Asks Python for a function that does the work of a cluster by TensorFlow's kernels, with the same
// promises to the Python functions that it calls. The arguments are as above.
absl::StatusOr<RewrittenFunction> PlainFunction(const std::string& library,
                                                const std::string& function, const Where& where);

// Tells Python that no more signatures of a function are compiled.
void TellOutgrown(const std::string& function);

}  // namespace hostcall
