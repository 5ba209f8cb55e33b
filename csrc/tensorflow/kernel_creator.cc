#include "kernel_creator.h"

#include <memory>
#include <string>

#include "fallback_kernel.h"
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
// compiled clusters in it. So is each function that XLA refuses, once it has. Everything else is
// TensorFlow's own business.
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
    if (!IsEnabled()) return xla_.CreateKernel(runtime, props, kernel);
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    const std::string& function = CalledFunction(props->node_def);
    if (const std::string refusal = RefusedValue(function, library); !refusal.empty()) {
      absl::Status status = CreateFallback(runtime, props, OnlyDevice(*runtime), refusal, kernel);
      return status.ok() && *kernel == nullptr ? absl::InvalidArgumentError(refusal) : status;
    }
    if (!MayBeRewritten(function, library)) {
      return CreateLaunch(runtime, props, {function, /*calls_host=*/false}, kernel);
    }
    return CreateRewritten(runtime, props, kernel);
  }

 private:
  absl::Status CreateRewritten(FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const NodeProperties>& props,
                               std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const std::string device = OnlyDevice(*runtime);
    absl::StatusOr<RewrittenFunction> rewritten = Rewrite(runtime, *props, device, "");
    if (!rewritten.ok()) return rewritten.status();
    if (rewritten->partitioned) {
      return CreatePartitioned(runtime, props, rewritten->name, "", kernel);
    }
    const bool calls_host = rewritten->name != CalledFunction(props->node_def);
    return CreateLaunch(runtime, props, {rewritten->name, calls_host}, kernel);
  }

  // What runs in the place of a function that XLA refuses; no kernel where that is an error.
  absl::Status CreateFallback(FunctionLibraryRuntime* runtime,
                              const std::shared_ptr<const NodeProperties>& props,
                              const std::string& device, const std::string& refusal,
                              std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    absl::StatusOr<RewrittenFunction> rewritten = Rewrite(runtime, *props, device, refusal);
    if (!rewritten.ok()) return rewritten.status();
    if (!rewritten->partitioned) return absl::OkStatus();
    return CreatePartitioned(runtime, props, rewritten->name, refusal, kernel);
  }

  // What Python puts into the place of the function that a node calls, which the library has then.
  absl::StatusOr<RewrittenFunction> Rewrite(FunctionLibraryRuntime* runtime,
                                            const NodeProperties& props, const std::string& device,
                                            const std::string& refusal) const {
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    const std::string& function = CalledFunction(props.node_def);
    absl::StatusOr<RewrittenFunction> rewritten =
        RewriteFunction(ReachableLibrary(function, library), function, device, refusal);
    if (!rewritten.ok()) return rewritten;
    // The library is const to kernels, but XLA will look for the new functions in it and nowhere
    // else. Adding is thread-safe; adding the same function again does nothing.
    absl::Status added =
        const_cast<FunctionLibraryDefinition&>(library).AddLibrary(rewritten->library);
    if (!added.ok()) return added;
    return rewritten;
  }

  // The kernel of a function that runs on the host, and was partitioned since XLA refuses it, if
  // there is a refusal.
  absl::Status CreatePartitioned(FunctionLibraryRuntime* runtime,
                                 const std::shared_ptr<const NodeProperties>& props,
                                 const std::string& name, const std::string& refusal,
                                 std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const auto on_several_devices = [this, runtime, props, refusal](auto* other) -> absl::Status {
      absl::StatusOr<RewrittenFunction> rewritten = Rewrite(runtime, *props, "", refusal);
      if (!rewritten.ok()) return rewritten.status();
      return CreatePartitioned(runtime, props, rewritten->name, refusal, other);
    };
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    return CreatePartitionedFunctionKernel(runtime, props, *library.Find(name), on_several_devices,
                                           kernel);
  }

  // The kernel of a function that is one program, and what runs where XLA refuses that.
  absl::Status CreateLaunch(FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            const LaunchedFunction& function,
                            std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    auto redirected = std::make_shared<NodeProperties>(*props);
    redirected->node_def = WithCalledFunction(props->node_def, function.name);
    absl::Status created = xla_.CreateKernel(runtime, redirected, kernel);
    if (!created.ok()) return created;
    if (function.calls_host) {
      created = RunOnCopies(runtime, redirected, kernel);
      if (!created.ok()) return created;
      const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
      const RunTracking scope = ScopeOf(*library.Find(function.name));
      created = TrackRuns(scope, runtime, redirected, kernel);
      if (!created.ok()) return created;
    }
    const auto fallback = [this, runtime, props](const std::string& refusal, auto* other) {
      return CreateFallback(runtime, props, OnlyDevice(*runtime), refusal, other);
    };
    return FallBackOnRefusal(runtime, props, function, fallback, kernel);
  }

  // A new one: registering ours deletes the creator that TensorFlow had.
  tensorflow::XlaKernelCreator xla_;
};

}  // namespace

void InstallKernelCreator() {
  tensorflow::RegisterDefaultCustomKernelCreator(new HostcallKernelCreator());
}

}  // namespace hostcall
