// Kernel creator for functions that are to be compiled.
#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/log/log.h"
#include "functions/call_kernel.h"
#include "functions/fallback_kernel.h"
#include "functions/kept_values.h"
#include "functions/reachable.h"
#include "hostcall_attributes.h"
#include "kernels.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "token.h"

namespace hostcall::serving {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;

bool HasEffects(const NodeDef& node) {
  if (!IsScriptOp(node.op()) || node.op() == "PyFuncStateless") return false;
  const auto attribute = node.attr().find("token");
  if (attribute == node.attr().end()) return true;
  const absl::StatusOr<Token> token = ParseToken(attribute->second.s());
  return !token.ok() || !token->pure;
}

// Counter of calls with side effects, which stops at two.
class Calls {
 public:
  explicit Calls(const FunctionLibraryDefinition& library) : library_(library) {}

  int In(const std::string& function) {
    const auto [known, is_new] = counts_.emplace(function, 0);  // 0 if it calls itself
    if (!is_new) return known->second;
    const auto record = library_.FindRecord(function);
    if (record == nullptr) return 0;
    int count = 0;
    for (const NodeDef& node : record->fdef().node_def()) count = std::min(2, count + Of(node));
    return counts_[function] = count;
  }

  int Of(const NodeDef& node) { return HasEffects(node) ? 1 : Below(node); }

  // Counts the calls in the functions that a node calls.
  int Below(const NodeDef& node) {
    int count = 0;
    for (const std::string& callee : Callees(node, library_)) count += In(callee);
    return std::min(2, count);
  }

 private:
  const FunctionLibraryDefinition& library_;
  std::unordered_map<std::string, int> counts_;
};

bool ConditionCalls(const FunctionDef& function, Calls& calls) {
  return std::any_of(function.node_def().begin(), function.node_def().end(), [&](const auto& node) {
    const auto condition = node.attr().find("cond");
    return condition != node.attr().end() && condition->second.has_func() &&
           calls.In(condition->second.func().name()) > 0;
  });
}

// Returns why a program would not keep the order of a function's calls, or "". The kernels chain
// the calls of one computation. Calls in a nested function, a loop or a branch would not be in that
// chain, and XLA omits conditions of loops whose iterations it can count.
std::string DisorderIn(const std::string& function, const FunctionLibraryDefinition& library) {
  Calls calls(library);
  const auto record = library.FindRecord(function);
  if (record == nullptr || calls.In(function) == 0) return "";
  const auto visit = [&](const FunctionDef& one) { return !ConditionCalls(one, calls); };
  if (!VisitReachable({function}, library, visit)) {
    return "the condition of a loop calls a host function with side effects";
  }
  if (calls.In(function) < 2) return "";
  for (const NodeDef& node : record->fdef().node_def()) {
    if (calls.Below(node) == 0) continue;
    return "it calls host functions with side effects more than once, and some of them in a "
           "function, a loop or a branch; XLA would not keep their order. Declare what has no side "
           "effects: tf.numpy_function(..., stateful=False), or hostcall.declare(..., pure=True)";
  }
  return "";
}

// Returns what a saved graph says of a function (plugin/hostcall/_saved/server_programs.py); "" if
// it says nothing.
std::string NoteOf(const std::string& function, const FunctionLibraryDefinition& library,
                   const std::string& name) {
  const auto record = library.FindRecord(function);
  if (record == nullptr) return "";
  for (const NodeDef& node : record->fdef().node_def()) {
    const auto note = node.attr().find(name);
    if (note != node.attr().end()) return note->second.s();
  }
  return "";
}

template <typename Arguments>
bool HaveSameTypes(const Arguments& some, const Arguments& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const auto& one, const auto& other) { return one.type() == other.type(); });
}

// Adds the program that a saved graph has for a function to the library, and returns its name.
// TensorFlow may have changed the function since, so that it takes or returns less.
absl::StatusOr<std::string> AddProgram(const std::string& serialized, const std::string& function,
                                       const FunctionLibraryDefinition& library) {
  tensorflow::FunctionDefLibrary program;
  if (!program.ParseFromString(serialized) || program.function().empty()) {
    return absl::InvalidArgumentError("the program that the graph has for it is damaged");
  }
  const tensorflow::OpDef& wanted = library.FindRecord(function)->fdef().signature();
  const tensorflow::OpDef& found = program.function(0).signature();
  if (!HaveSameTypes(found.input_arg(), wanted.input_arg()) ||
      !HaveSameTypes(found.output_arg(), wanted.output_arg())) {
    return absl::InvalidArgumentError("the program that the graph has for it has other arguments");
  }
  const std::string name = found.name();
  // The library is const to kernels, but XLA will look for the functions nowhere else. Adding is
  // thread-safe; adding the same function again does nothing.
  TF_RETURN_IF_ERROR(const_cast<FunctionLibraryDefinition&>(library).AddLibrary(program));
  return name;
}

// Returns the function that XLA is to compile in the place of one, if not that one itself.
absl::StatusOr<std::string> CompiledFor(const std::string& function,
                                        const FunctionLibraryDefinition& library) {
  const std::string program = NoteOf(function, library, attributes::PROGRAM);
  if (program.empty()) return function;
  return AddProgram(program, function, library);
}

class ServingKernelCreator : public tensorflow::CustomKernelCreator {
 public:
  bool CanCreateKernel(const FunctionLibraryRuntime& runtime,
                       const std::shared_ptr<const NodeProperties>& props) const override {
    return xla_.CanCreateKernel(runtime, props);
  }

  absl::Status CreateKernel(FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            KernelPtr* kernel) const override {
    const KernelRequest request{runtime, props};
    const std::string& function = CalledFunction(props->node_def);
    const auto make_plain = [request, function](const std::string& why, auto* plain) {
      LOG(INFO) << "hostcall: TensorFlow's kernels run the function " << function
                << ", and XLA does not: " << why;
      return CreatePlainCallKernel(request, function, plain);
    };
    std::string reason = RefusedValue(function, request.library());
    if (reason.empty()) reason = MisreadValue(function, request.library());
    if (reason.empty()) reason = DisorderIn(function, request.library());
    if (reason.empty()) reason = NoteOf(function, request.library(), attributes::UNCOMPILED);
    if (!reason.empty()) return make_plain(reason, kernel);
    const absl::StatusOr<std::string> compiled = CompiledFor(function, request.library());
    if (!compiled.ok()) return make_plain(std::string(compiled.status().message()), kernel);
    const auto launch = std::make_shared<NodeProperties>(*props);
    launch->node_def = WithCalledFunction(props->node_def, *compiled);
    TF_RETURN_IF_ERROR(xla_.CreateKernel(runtime, launch, kernel));
    const bool calls_host = ReachesScriptOp(launch->node_def, request.library());
    if (calls_host) TF_RETURN_IF_ERROR(KeepValues({runtime, launch}, kernel));
    return FallBackOnRefusal(request, {*compiled, function, {}, calls_host}, make_plain,
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
