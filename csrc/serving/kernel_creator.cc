#include "kernel_creator.h"

#include <memory>
#include <string>
#include <unordered_set>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "call_order.h"
#include "functions/call_kernel.h"
#include "functions/fallback_kernel.h"
#include "functions/reachable.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall::serving {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeProperties;

// Returns the function that a node calls: in `f` of a PartitionedCall, or an eager call's op.
const std::string& CalledFunction(const tensorflow::NodeDef& node) {
  const auto f = node.attr().find("f");
  return f != node.attr().end() && f->second.has_func() ? f->second.func().name() : node.op();
}

// Returns why TensorFlow's kernels must run a function that XLA would take, or "".
std::string ReasonAgainst(const std::string& function, const FunctionLibraryDefinition& library) {
  const std::string refused = RefusedValue(function, library);
  return refused.empty() ? DisorderIn(function, library) : refused;
}

class ServingKernelCreator : public tensorflow::CustomKernelCreator {
 public:
  bool CanCreateKernel(const FunctionLibraryRuntime& runtime,
                       const std::shared_ptr<const NodeProperties>& props) const override {
    return xla_.CanCreateKernel(runtime, props);
  }

  absl::Status CreateKernel(FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            std::unique_ptr<tensorflow::OpKernel>* kernel) const override {
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    const std::string& function = CalledFunction(props->node_def);
    const auto make_plain = [runtime, props, function](const std::string& why, auto* plain) {
      LOG(INFO) << "hostcall: TensorFlow's kernels run the function " << function
                << ", and XLA does not: " << why;
      return CreatePlainCallKernel(runtime, props, function, plain);
    };
    if (const std::string reason = ReasonAgainst(function, library); !reason.empty()) {
      return make_plain(reason, kernel);
    }
    absl::Status created = xla_.CreateKernel(runtime, props, kernel);
    if (!created.ok()) return created;
    const bool calls_host = ReachesScriptOp(props->node_def, library);
    return FallBackOnRefusal(runtime, props, {function, function, {}, calls_host}, make_plain,
                             /*on_success=*/nullptr, kernel);
  }

 private:
  // A new creator, since registering ours deletes TensorFlow's.
  tensorflow::XlaKernelCreator xla_;
};

}  // namespace

void InstallKernelCreator() {
  tensorflow::RegisterDefaultCustomKernelCreator(new ServingKernelCreator());
}

}  // namespace hostcall::serving
