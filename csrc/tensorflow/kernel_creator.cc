// Creation of the kernels of must-compile functions.
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bounded_launch.h"
#include "functions/call_kernel.h"
#include "functions/fallback_kernel.h"
#include "functions/reachable.h"
#include "hostcall_attributes.h"
#include "module.h"
#include "named_errors.h"
#include "partitioned_function_kernel.h"
#include "python_hooks.h"
#include "region_launch.h"
#include "run_tracking.h"
#include "starters.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/graph_debug_info_builder.h"
#include "variable_copies.h"

namespace hostcall {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;

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
  return {HasFlag(function, attributes::TRACKS_RUN), HasFlag(function, attributes::SHARES_MEMORY),
          HasFlag(function, attributes::TAKES_TURNS)};
}

// Returns a runtime's place. Unless it is a CPU, parts run elsewhere: callbacks run on CPUs.
Where WhereItRuns(const FunctionLibraryRuntime& runtime) {
  const tensorflow::Device* device = runtime.device();
  if (device == nullptr) return {"", /*others=*/true};
  return {device->name(), device->device_type() != tensorflow::DEVICE_CPU};
}

// Returns where the user's code has made a node, in TensorFlow's format; "" if it is unknown.
std::string CreatedAt(const MissingKernel& missing, const FunctionLibraryDefinition& library) {
  const auto record = library.FindRecord(missing.function);
  if (record == nullptr) return "";
  const auto trace = record->stack_traces().find(missing.node);
  if (trace == record->stack_traces().end() || trace->second == nullptr) return "";
  tensorflow::AbstractStackTrace::TracePrintingOptions options;
  options.drop_internal_frames = true;
  return absl::StrCat("\nThe op is created at:\n", trace->second->ToString(options));
}

// Returns XLA's message if an op that it gets to see has no kernel for the device of the runtime;
// else "". Compiling the function would take long, and would leave a warning of TensorFlow's on the
// terminal.
std::string RefusalForMissingKernels(const FunctionLibraryRuntime& runtime,
                                     const std::string& function) {
  const tensorflow::Device* device = runtime.device();
  if (device == nullptr) return "";
  const FunctionLibraryDefinition& library = *runtime.GetFunctionLibraryDefinition();
  if (!MayLackXlaKernel(function, library, device->device_type())) return "";
  // If Python cannot tell, XLA will.
  const auto found =
      MissingKernels(SerializedReachable(function, library), function, device->name());
  if (!found.ok() || found->empty()) return "";
  const auto in_words = [](std::string* out, const MissingKernel& missing) {
    absl::StrAppend(out, missing.op, " (No registered '", missing.op, "' OpKernel){{node ",
                    missing.node, "}}");
  };
  return absl::StrCat("Detected unsupported operations in ", function, ": ",
                      absl::StrJoin(*found, ", ", in_words), CreatedAt(found->front(), library));
}

// Separator of the messages that XLA has given for a function at several times.
constexpr char kNext[] = "\x1e";

struct Refusal {
  std::string message;
  bool whole = false;  // true if the function may be one program, with regions
};

// Creator that redirects each must-compile function that calls back into Python: to a copy with
// ordered side effects, which runs on copies of its variables, or to one that runs on the host with
// compiled clusters in it. A function that XLA refuses becomes a program with regions or, if XLA
// refuses that too, a function that runs on the host. TensorFlow handles all others.
class HostcallKernelCreator : public tensorflow::CustomKernelCreator {
 public:
  bool CanCreateKernel(const FunctionLibraryRuntime& runtime,
                       const std::shared_ptr<const NodeProperties>& props) const override {
    const NodeDef& node = props->node_def;
    return IsInnerCall(node) || NotesErrors(node) || xla_.CanCreateKernel(runtime, props);
  }

  absl::Status CreateKernel(FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            std::unique_ptr<tensorflow::OpKernel>* kernel) const override {
    if (IsInnerCall(props->node_def)) return CreateInnerCallKernel(runtime, props, kernel);
    if (NotesErrors(props->node_def)) return CreateNotingKernel(runtime, props, kernel);
    if (!IsEnabled()) return xla_.CreateKernel(runtime, props, kernel);
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    const std::string& function = CalledFunction(props->node_def);
    if (const std::string refusal = RefusedValue(function, library); !refusal.empty()) {
      absl::Status status = CreateFallback(runtime, props, {refusal, /*whole=*/true}, kernel);
      return status.ok() && *kernel == nullptr ? absl::InvalidArgumentError(refusal) : status;
    }
    if (!MayBeRewritten(function, library)) {
      return CreateLaunch(runtime, props, {function, function, {}, /*calls_host=*/false}, {},
                          kernel);
    }
    return CreateRewritten(runtime, props, kernel);
  }

 private:
  absl::Status CreateRewritten(FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const NodeProperties>& props,
                               std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const Refusal none{"", /*whole=*/true};
    absl::StatusOr<RewrittenFunction> rewritten =
        Rewrite(runtime, *props, none, WhereItRuns(*runtime));
    if (!rewritten.ok()) return rewritten.status();
    if (!rewritten->regions.empty()) {
      return CreateWithRegions(runtime, props, *rewritten, none, kernel);
    }
    const std::string& function = CalledFunction(props->node_def);
    if (rewritten->partitioned) {
      Announce(function);
      return CreatePartitioned(runtime, props, rewritten->name, Rewriter(runtime, props, {}),
                               kernel);
    }
    const bool calls_host = rewritten->name != function;
    LaunchedFunction launched{rewritten->name, function, {}, calls_host};
    launched.is_bounded = rewritten->sizes_vary;
    return CreateLaunch(runtime, props, launched, {}, kernel);
  }

  // Creates the replacement of a function that XLA refuses; no kernel if that is an error.
  absl::Status CreateFallback(FunctionLibraryRuntime* runtime,
                              const std::shared_ptr<const NodeProperties>& props,
                              const Refusal& refusal,
                              std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    absl::StatusOr<RewrittenFunction> rewritten =
        Rewrite(runtime, *props, refusal, WhereItRuns(*runtime));
    if (!rewritten.ok()) return rewritten.status();
    const std::string& entry = CalledFunction(props->node_def);
    if (rewritten->partitioned || !rewritten->regions.empty()) NoteRefused(entry);
    if (rewritten->partitioned) {
      const auto rewrite = Rewriter(runtime, props, refusal);
      absl::Status created = CreatePartitioned(runtime, props, rewritten->name, rewrite, kernel);
      if (created.ok()) Announce(entry);
      return created;
    }
    if (rewritten->regions.empty()) return absl::OkStatus();
    return CreateWithRegions(runtime, props, *rewritten, refusal, kernel);
  }

  // Creates the kernel of a program with regions, or if that fails, of a partitioned function.
  absl::Status CreateWithRegions(FunctionLibraryRuntime* runtime,
                                 const std::shared_ptr<const NodeProperties>& props,
                                 const RewrittenFunction& rewritten, const Refusal& refusal,
                                 std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const LaunchedFunction function{rewritten.name, CalledFunction(props->node_def),
                                    rewritten.regions, /*calls_host=*/true};
    const absl::Status launched = CreateLaunch(runtime, props, function, refusal.message, kernel);
    if (launched.ok()) return launched;
    VLOG(1) << "hostcall: no kernel for a program with regions: " << launched;
    const std::string message =
        refusal.message.empty() ? std::string(launched.message()) : refusal.message;
    return CreateFallback(runtime, props, {message, /*whole=*/false}, kernel);
  }

  // Creates the kernel that runs a cluster that calls the host when it is not compiled.
  absl::Status CreatePlain(FunctionLibraryRuntime* runtime,
                           const std::shared_ptr<const NodeProperties>& props,
                           std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const auto rewrite = [this, runtime, props](const Where& where) {
      const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
      const std::string& function = CalledFunction(props->node_def);
      return Add(library, PlainFunction(SerializedReachable(function, library), function, where));
    };
    absl::StatusOr<RewrittenFunction> rewritten = rewrite(WhereItRuns(*runtime));
    if (!rewritten.ok()) return rewritten.status();
    return CreatePartitioned(runtime, props, rewritten->name, rewrite, kernel);
  }

  // Asks Python to replace the function that a node calls, and adds the answer to the library.
  absl::StatusOr<RewrittenFunction> Rewrite(FunctionLibraryRuntime* runtime,
                                            const NodeProperties& props, const Refusal& refusal,
                                            const Where& where) const {
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    const std::string& function = CalledFunction(props.node_def);
    return Add(library, RewriteFunction(SerializedReachable(function, library), function, where,
                                        refusal.message, refusal.whole));
  }

  // Rewriting for each place where a function may run.
  using RewriteForPlace = std::function<absl::StatusOr<RewrittenFunction>(const Where& where)>;
  RewriteForPlace Rewriter(FunctionLibraryRuntime* runtime,
                           const std::shared_ptr<const NodeProperties>& props,
                           const Refusal& refusal) const {
    return [this, runtime, props, refusal](const Where& where) {
      return Rewrite(runtime, *props, refusal, where);
    };
  }

  // Adds functions to the library. It is const to kernels, but XLA will look for the new functions
  // nowhere else. Adding is thread-safe; adding the same function again does nothing.
  static absl::StatusOr<RewrittenFunction> Add(const FunctionLibraryDefinition& library,
                                               absl::StatusOr<RewrittenFunction> rewritten) {
    if (!rewritten.ok()) return rewritten;
    // Most often this is the eager context's library, which has just got the functions: parsing and
    // comparing a large one would take as long as adding it.
    if (rewritten->added && library.Contains(rewritten->name)) return rewritten;
    tensorflow::FunctionDefLibrary functions;
    if (!functions.ParseFromString(rewritten->library)) {
      return absl::InternalError("hostcall: the rewritten function library does not parse");
    }
    absl::Status added = const_cast<FunctionLibraryDefinition&>(library).AddLibrary(functions);
    if (!added.ok()) return added;
    return rewritten;
  }

  // Creates the kernel of a function on the host, and by `rewrite` the one for several devices.
  absl::Status CreatePartitioned(FunctionLibraryRuntime* runtime,
                                 const std::shared_ptr<const NodeProperties>& props,
                                 const std::string& name, const RewriteForPlace& rewrite,
                                 std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const auto on_several_devices = [this, runtime, props, rewrite](auto* other) -> absl::Status {
      Where where = WhereItRuns(*runtime);
      where.others = true;
      absl::StatusOr<RewrittenFunction> rewritten = rewrite(where);
      if (!rewritten.ok()) return rewritten.status();
      return CreatePartitioned(runtime, props, rewritten->name, rewrite, other);
    };
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    return CreatePartitionedFunctionKernel(runtime, props, *library.Find(name),
                                           CalledFunction(props->node_def), on_several_devices,
                                           kernel);
  }

  // Creates the kernel of a function that is one program, with a fallback if XLA refuses that as
  // well. `earlier` is XLA's message on the function before it had regions.
  absl::Status CreateLaunch(FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            const LaunchedFunction& function, const std::string& earlier,
                            std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const bool whole = function.regions.empty();
    const bool is_cluster = IsCluster(*runtime, *props);
    if (whole && !is_cluster) {
      absl::Status foreseen = CreateForeseenFallback(runtime, props, function.name, kernel);
      if (!foreseen.ok() || *kernel != nullptr) return foreseen;
    }
    absl::Status created = CreateProgram(runtime, props, function, kernel);
    if (!created.ok()) return created;
    const auto fallback = [this, runtime, props, earlier, whole](const std::string& refusal,
                                                                 auto* other) {
      const std::string said = earlier.empty() ? refusal : absl::StrCat(earlier, kNext, refusal);
      return CreateFallback(runtime, props, {said, whole}, other);
    };
    std::function<void()> announce;
    if (!whole) announce = [entry = function.entry] { Announce(entry); };
    LaunchedFunction launched = function;
    launched.is_cluster = is_cluster;
    launched.elsewhere = &starters::OfItsStarter;
    created = FallBackOnRefusal(runtime, props, launched, fallback, announce, kernel);
    if (!created.ok() || !(launched.is_cluster || launched.is_bounded)) return created;
    return Bound(runtime, props, function.calls_host, kernel);
  }

  // Creates the fallback of a function for which XLA lacks kernels; no kernel if it has all.
  absl::Status CreateForeseenFallback(FunctionLibraryRuntime* runtime,
                                      const std::shared_ptr<const NodeProperties>& props,
                                      const std::string& function,
                                      std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const std::string refusal = RefusalForMissingKernels(*runtime, function);
    if (refusal.empty()) return absl::OkStatus();
    return CreateFallback(runtime, props, {refusal, /*whole=*/true}, kernel);
  }

  static bool IsCluster(const FunctionLibraryRuntime& runtime, const NodeProperties& props) {
    const auto called =
        runtime.GetFunctionLibraryDefinition()->FindRecord(CalledFunction(props.node_def));
    return called != nullptr && HasFlag(called->fdef(), attributes::CLUSTER);
  }

  // Bounds the number of a cluster's compilations.
  absl::Status Bound(FunctionLibraryRuntime* runtime,
                     const std::shared_ptr<const NodeProperties>& props, bool calls_host,
                     std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const std::string& name = CalledFunction(props->node_def);
    const auto make_plain = [this, runtime, props, calls_host](auto* plain) {
      return calls_host
                 ? CreatePlain(runtime, props, plain)
                 : CreatePlainCallKernel(runtime, props, CalledFunction(props->node_def), plain);
    };
    return BoundCompilations(runtime, props, name, make_plain, kernel);
  }

  // Creates the kernel that XLA makes of a function, and wraps it in hostcall's own.
  absl::Status CreateProgram(FunctionLibraryRuntime* runtime,
                             const std::shared_ptr<const NodeProperties>& props,
                             const LaunchedFunction& function,
                             std::unique_ptr<tensorflow::OpKernel>* kernel) const {
    const FunctionLibraryDefinition& library = *runtime->GetFunctionLibraryDefinition();
    auto redirected = std::make_shared<NodeProperties>(*props);
    redirected->node_def = WithCalledFunction(props->node_def, function.name);
    std::shared_ptr<const NodeProperties> node = redirected;
    if (!function.regions.empty()) {
      auto with_regions = RegionLaunchNode(*props, *library.Find(function.name));
      if (!with_regions.ok()) return with_regions.status();
      node = *std::move(with_regions);
    }
    absl::Status created = xla_.CreateKernel(runtime, node, kernel);
    if (!created.ok() || !function.calls_host) return created;
    created = RunOnCopies(runtime, node, kernel);
    if (!created.ok()) return created;
    created = TrackRuns(ScopeOf(*library.Find(function.name)), runtime, node, kernel);
    if (!created.ok() || function.regions.empty()) return created;
    return LaunchWithRegions(runtime, props, function.regions, kernel);
  }

  // A new creator, since registering ours deletes TensorFlow's.
  tensorflow::XlaKernelCreator xla_;
};

}  // namespace

void InstallKernelCreator() {
  tensorflow::RegisterDefaultCustomKernelCreator(new HostcallKernelCreator());
}

}  // namespace hostcall
