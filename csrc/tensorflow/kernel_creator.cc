#include "kernel_creator.h"

#include <memory>
#include <string>

#include "flags.h"
#include "hostcall_attributes.h"
#include "partitioned_function_kernel.h"
#include "python_hooks.h"
#include "reachable.h"
#include "run_tracking.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "variable_copies.h"

namespace hostcall {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;

// The function that a node calls: a PartitionedCall names it in `f`, an eager call in its op.
const std::string& CalledFunction(const NodeDef& node) {
  auto f = node.attr().find("f");
  return f != node.attr().end() && f->second.has_func() ? f->second.func().name() : node.op();
}

NodeDef WithCalledFunction(NodeDef node, const std::string& function) {
  auto f = node.mutable_attr()->find("f");
  if (f != node.mutable_attr()->end() && f->second.has_func()) {
    f->second.mutable_func()->set_name(function);
  } else {
    node.set_op(function);
  }
  return node;
}

RunTracking ScopeOf(const tensorflow::FunctionDef& function) {
  return {HasFlag(function, attributes::KEEPS_RESIDUALS),
          HasFlag(function, attributes::SHARES_MEMORY)};
}

// Where all parts of a function would run, if they can run on one device: callbacks run on CPUs.
std::string OnlyDevice(const FunctionLibraryRuntime& runtime) {
  const tensorflow::Device* device = runtime.device();
  return device != nullptr && device->device_type() == tensorflow::DEVICE_CPU ? device->name() : "";
}

// Redirects each must-compile function that calls back into Python: to a copy of it whose side
// effects are ordered, which runs on copies of its variables, or to one that runs on the host with
// compiled clusters in it. Everything else is TensorFlow's own business.
class HostcallKernelCreator : public tensorflow::CustomKernelCreator {
 public:
  bool CanCreateKernel(const FunctionLibraryRuntime& runtime,
                       const std::shared_ptr<const NodeProperties>& props) const override {
    return IsInnerCall(props->node_def) || xla_.CanCreateKernel(runtime, props);
  }

  absl::Status CreateKernel(FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            std::unique_ptr<tensorflow::OpKernel>* kernel) const override {
    if (IsInnerCall(props->node_def)) return CreateInnerCallKernel(runtime, props, kernel);
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    if (!IsEnabled() || !MayBeRewritten(CalledFunction(props->node_def), library)) {
      return xla_.CreateKernel(runtime, props, kernel);
    }
    return CreateRewritten(runtime, props, OnlyDevice(*runtime), kernel);
  }

 private:
  absl::Status CreateRewritten(FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const NodeProperties>& props,
                               const std::string& device,
                               std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    const std::string& function = CalledFunction(props->node_def);
    absl::StatusOr<RewrittenFunction> rewritten =
        RewriteFunction(ReachableLibrary(function, library), function, device);
    if (!rewritten.ok()) return rewritten.status();
    if (rewritten->name == function) return xla_.CreateKernel(runtime, props, kernel);
    // The library is const to kernels, but XLA will look for the new functions in it and nowhere
    // else. Adding is thread-safe; adding the same function again does nothing.
    absl::Status added =
        const_cast<FunctionLibraryDefinition&>(library).AddLibrary(rewritten->library);
    if (!added.ok()) return added;
    if (rewritten->partitioned) {
      const auto on_several_devices = [this, runtime, props](auto* other) {
        return CreateRewritten(runtime, props, "", other);
      };
      return CreatePartitionedFunctionKernel(runtime, props, *library.Find(rewritten->name),
                                             on_several_devices, kernel);
    }
    auto redirected = std::make_shared<NodeProperties>(*props);
    redirected->node_def = WithCalledFunction(props->node_def, rewritten->name);
    absl::Status created = xla_.CreateKernel(runtime, redirected, kernel);
    if (!created.ok()) return created;
    created = RunOnCopies(runtime, redirected, kernel);
    if (!created.ok()) return created;
    return TrackRuns(ScopeOf(*library.Find(rewritten->name)), runtime, redirected, kernel);
  }

  // A new one: registering ours deletes the creator that TensorFlow had.
  tensorflow::XlaKernelCreator xla_;
};

}  // namespace

void InstallKernelCreator() {
  tensorflow::RegisterDefaultCustomKernelCreator(new HostcallKernelCreator());
}

}  // namespace hostcall
