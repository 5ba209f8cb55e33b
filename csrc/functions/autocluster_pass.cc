// Keeps script ops out of auto-clustering.
//
// TensorFlow's auto-clustering (tf.config.optimizer.set_jit, TF_XLA_FLAGS=--tf_xla_auto_jit=2)
// takes every op that has an XLA kernel. With hostcall a script op has one, but it compiles only if
// its result shapes are known, so programs that worked before would fail. The user did not ask to
// compile these ops: they stay on the host, as without hostcall.
#include "reachable.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"

namespace hostcall {
namespace {

// The attribute that jit_scope(compile_ops=False) sets.
constexpr char kXlaCompile[] = "_XlaCompile";

class KeepScriptOpsOnHost : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || options.flib_def == nullptr) return absl::OkStatus();
    for (tensorflow::Node* node : (*options.graph)->op_nodes()) {
      // Skip the look-up for nodes that call no functions, which are most nodes of a graph.
      const bool calls =
          node->IsFunctionCall() || node->IsIfNode() || node->IsWhileNode() || node->IsCaseNode();
      const bool reaches =
          calls ? ReachesScriptOp(node->def(), *options.flib_def) : CallsPython(node->def());
      if (!reaches) continue;
      node->ClearAttr(kXlaCompile);
      node->AddAttr(kXlaCompile, false);
    }
    return absl::OkStatus();
  }
};

// Run before clustering, which is phase 10 of the same group.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 0,
                      KeepScriptOpsOnHost);

}  // namespace
}  // namespace hostcall
