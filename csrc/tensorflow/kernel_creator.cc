// Creation of the kernels of must-compile functions.
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "functions/call_kernel.h"
#include "functions/fallback_kernel.h"
#include "functions/kept_values.h"
#include "functions/reachable.h"
#include "hostcall_attributes.h"
#include "launch.h"
#include "module.h"
#include "python_hooks.h"
#include "starters.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;

LaunchNeeds NeedsOf(const tensorflow::FunctionDef& function) {
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
  const std::string trace = TraceOf(missing.function, missing.node, library);
  return trace.empty() ? "" : absl::StrCat("\nThe op is created at:\n", trace);
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
                            KernelPtr* kernel) const override {
    const KernelRequest request{runtime, props};
    if (IsInnerCall(props->node_def)) return CreateInnerCallKernel(request, kernel);
    if (NotesErrors(props->node_def)) return CreateNotingKernel(request, kernel);
    if (!IsEnabled()) return xla_.CreateKernel(runtime, props, kernel);
    const std::string& function = CalledFunction(props->node_def);
    if (const std::string refusal = RefusedValue(function, request.library()); !refusal.empty()) {
      absl::Status status = CreateFallback(request, {refusal, /*whole=*/true}, kernel);
      return status.ok() && *kernel == nullptr ? absl::InvalidArgumentError(refusal) : status;
    }
    if (!MayBeRewritten(function, request.library())) {
      return CreateLaunch(request, {function, function, {}, /*calls_host=*/false}, {}, kernel);
    }
    return CreateRewritten(request, kernel);
  }

 private:
  absl::Status CreateRewritten(const KernelRequest& request, KernelPtr* kernel) const {
    const Refusal none{"", /*whole=*/true};
    const auto rewrite = Rewriter(request, none);
    TF_ASSIGN_OR_RETURN(const RewrittenFunction rewritten, rewrite(WhereItRuns(*request.runtime)));
    if (!rewritten.regions.empty()) return CreateWithRegions(request, rewritten, none, kernel);
    const std::string& function = CalledFunction(request.props->node_def);
    if (rewritten.partitioned) {
      Announce(function);
      return CreatePartitioned(request, rewritten.name, rewrite, kernel);
    }
    const bool calls_host = rewritten.name != function;
    LaunchedFunction launched{rewritten.name, function, {}, calls_host};
    launched.is_bounded = rewritten.sizes_vary;
    return CreateLaunch(request, launched, {}, kernel);
  }

  // Creates the replacement of a function that XLA refuses; no kernel if that is an error.
  absl::Status CreateFallback(const KernelRequest& request, const Refusal& refusal,
                              KernelPtr* kernel) const {
    const auto rewrite = Rewriter(request, refusal);
    TF_ASSIGN_OR_RETURN(const RewrittenFunction rewritten, rewrite(WhereItRuns(*request.runtime)));
    const std::string& entry = CalledFunction(request.props->node_def);
    if (rewritten.partitioned || !rewritten.regions.empty()) NoteRefused(entry);
    if (rewritten.partitioned) {
      absl::Status created = CreatePartitioned(request, rewritten.name, rewrite, kernel);
      if (created.ok()) Announce(entry);
      return created;
    }
    if (rewritten.regions.empty()) return absl::OkStatus();
    return CreateWithRegions(request, rewritten, refusal, kernel);
  }

  // Creates the kernel of a program with regions, or if that fails, of a partitioned function.
  absl::Status CreateWithRegions(const KernelRequest& request, const RewrittenFunction& rewritten,
                                 const Refusal& refusal, KernelPtr* kernel) const {
    const LaunchedFunction function{rewritten.name, CalledFunction(request.props->node_def),
                                    rewritten.regions, /*calls_host=*/true};
    const absl::Status launched = CreateLaunch(request, function, refusal.message, kernel);
    if (launched.ok()) return launched;
    VLOG(1) << "hostcall: no kernel for a program with regions: " << launched;
    const std::string message =
        refusal.message.empty() ? std::string(launched.message()) : refusal.message;
    return CreateFallback(request, {message, /*whole=*/false}, kernel);
  }

  // Creates the kernel that runs a cluster that calls the host when it is not compiled.
  absl::Status CreatePlain(const KernelRequest& request, KernelPtr* kernel) const {
    const auto rewrite = [request](const Where& where) {
      const std::string& function = CalledFunction(request.props->node_def);
      return Add(request.library(),
                 PlainFunction(SerializedReachable(function, request.library()), function, where));
    };
    TF_ASSIGN_OR_RETURN(const RewrittenFunction rewritten, rewrite(WhereItRuns(*request.runtime)));
    return CreatePartitioned(request, rewritten.name, rewrite, kernel);
  }

  // Rewriting for each place where a function may run: asks Python to replace the function that a
  // node calls, and adds the answer to the library.
  using RewriteForPlace = std::function<absl::StatusOr<RewrittenFunction>(const Where& where)>;
  static RewriteForPlace Rewriter(const KernelRequest& request, const Refusal& refusal) {
    return [request, refusal](const Where& where) {
      const std::string& function = CalledFunction(request.props->node_def);
      const RewriteScope scope(request.library());
      return Add(request.library(),
                 RewriteFunction(SerializedReachable(function, request.library()), function, where,
                                 refusal.message, refusal.whole));
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
    TF_RETURN_IF_ERROR(const_cast<FunctionLibraryDefinition&>(library).AddLibrary(functions));
    return rewritten;
  }

  // Creates the kernel of a function on the host, and by `rewrite` the one for several devices.
  static absl::Status CreatePartitioned(const KernelRequest& request, const std::string& name,
                                        const RewriteForPlace& rewrite, KernelPtr* kernel) {
    const auto on_several_devices = [request, rewrite](auto* other) -> absl::Status {
      Where where = WhereItRuns(*request.runtime);
      where.others = true;
      TF_ASSIGN_OR_RETURN(const RewrittenFunction rewritten, rewrite(where));
      return CreatePartitioned(request, rewritten.name, rewrite, other);
    };
    return CreatePartitionedFunctionKernel(request, *request.library().Find(name),
                                           CalledFunction(request.props->node_def),
                                           on_several_devices, kernel);
  }

  // Creates the kernel of a function that is one program, with a fallback if XLA refuses that as
  // well. `earlier` is XLA's message on the function before it had regions.
  absl::Status CreateLaunch(const KernelRequest& request, const LaunchedFunction& function,
                            const std::string& earlier, KernelPtr* kernel) const {
    const bool whole = function.regions.empty();
    const bool is_cluster = IsCluster(request);
    if (whole && !is_cluster) {
      const std::string predicted = RefusalForMissingKernels(*request.runtime, function.name);
      if (!predicted.empty()) {
        TF_RETURN_IF_ERROR(CreateFallback(request, {predicted, /*whole=*/true}, kernel));
        if (*kernel != nullptr) return absl::OkStatus();
      }
    }
    TF_RETURN_IF_ERROR(CreateProgram(request, function, kernel));
    const auto fallback = [this, request, earlier, whole](const std::string& refusal, auto* other) {
      const std::string said = earlier.empty() ? refusal : absl::StrCat(earlier, kNext, refusal);
      return CreateFallback(request, {said, whole}, other);
    };
    std::function<void()> announce;
    if (!whole) announce = [entry = function.entry] { Announce(entry); };
    LaunchedFunction launched = function;
    launched.is_cluster = is_cluster;
    launched.elsewhere = &starters::OfItsStarter;
    TF_RETURN_IF_ERROR(FallBackOnRefusal(request, launched, fallback, announce, kernel));
    if (!launched.is_cluster && !launched.is_bounded) return absl::OkStatus();
    const bool calls_python = CallsPython(request, function);
    const auto make_plain = [this, request, calls_python](auto* plain) {
      return calls_python
                 ? CreatePlain(request, plain)
                 : CreatePlainCallKernel(request, CalledFunction(request.props->node_def), plain);
    };
    return BoundCompilations(request, make_plain, kernel);
  }

  static bool IsCluster(const KernelRequest& request) {
    const auto called = request.library().FindRecord(CalledFunction(request.props->node_def));
    return called != nullptr && HasFlag(called->fdef(), attributes::CLUSTER);
  }

  // Returns true if a program calls the host for more than the errors of its values.
  static bool CallsPython(const KernelRequest& request, const LaunchedFunction& function) {
    if (!function.calls_host) return false;
    return !HasFlag(*request.library().Find(function.name), attributes::ONLY_RAISES);
  }

  // Creates the kernel that XLA makes of a function, and wraps it in hostcall's own.
  absl::Status CreateProgram(const KernelRequest& request, const LaunchedFunction& function,
                             KernelPtr* kernel) const {
    const NodeProperties& props = *request.props;
    const tensorflow::FunctionDef* definition = request.library().Find(function.name);
    KernelRequest program = request;
    if (function.regions.empty()) {
      auto redirected = std::make_shared<NodeProperties>(props);
      redirected->node_def = WithCalledFunction(props.node_def, function.name);
      program.props = std::move(redirected);
    } else {
      TF_ASSIGN_OR_RETURN(program.props, RegionLaunchNode(props, *definition));
    }
    TF_RETURN_IF_ERROR(xla_.CreateKernel(program.runtime, program.props, kernel));
    if (!function.calls_host) return absl::OkStatus();
    if (!CallsPython(request, function)) return KeepValues(program, kernel);
    TF_RETURN_IF_ERROR(RunOnCopies(program, kernel));
    TF_RETURN_IF_ERROR(LaunchWith(NeedsOf(*definition), program, kernel));
    if (function.regions.empty()) return absl::OkStatus();
    return LaunchWithRegions(request, function.regions, kernel);
  }

  // A new creator, since registering ours deletes TensorFlow's.
  tensorflow::XlaKernelCreator xla_;
};

}  // namespace

void InstallKernelCreator() {
  tensorflow::RegisterDefaultCustomKernelCreator(new HostcallKernelCreator());
}

}  // namespace hostcall
