#include "reachable.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "call_kernel.h"
#include "hostcall_attributes.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/types.h"

namespace hostcall {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;
using Names = std::unordered_set<std::string>;

// Attribute of a backward function: the name of the function whose gradient it computes.
constexpr char kForward[] = "forward_function_name";
// Attribute of a function that returns values for its gradient: the gradient function's name.
constexpr char kBackward[] = "backward_function_name";

bool IsMarkedForHost(const NodeDef& node) {
  const auto route = node.attr().find(attributes::ROUTE);
  return route != node.attr().end() && route->second.s() == "partition";
}

// Returns true if a list may grow. XLA's lists have a fixed size and drop writes beyond the end.
bool LetsListGrow(const NodeDef& node) {
  return node.op() == "TensorListSetItem" && HasFlag(node, "resize_if_index_out_of_bounds");
}

// Leaked: kernels may be created while the process ends.
struct Table {
  std::mutex mutex;
  std::shared_ptr<const Names> at_risk = std::make_shared<const Names>();
  Names refused;
};
Table& GlobalTable() {
  static Table* table = new Table();
  return *table;
}

bool WasRefused(const std::string& function) {
  Table& table = GlobalTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  return table.refused.count(function) > 0;
}

std::atomic<Examined> examined_functions{Examined::kNone};

Examined ExaminedFunctions() { return examined_functions.load(std::memory_order_relaxed); }

// Returns the ops for which Python examines a function that calls no Python.
std::shared_ptr<const Names> ExaminedOps(const std::string& function,
                                         const FunctionLibraryDefinition& library) {
  static const auto* none = new std::shared_ptr<const Names>(std::make_shared<const Names>());
  const Examined examined = ExaminedFunctions();
  if (examined == Examined::kNone) return *none;
  const auto record = library.FindRecord(function);
  const bool is_cluster = record != nullptr && HasFlag(record->fdef(), attributes::CLUSTER);
  if (examined == Examined::kClusters && !is_cluster) return *none;
  Table& table = GlobalTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  return table.at_risk;
}

// Returns true if tracing leaves open the size of a conditional's result. Its branches may then
// differ, and XLA would alter the values that they return.
bool IsOpenConditional(const NodeDef& node) {
  static const Names* kinds = new Names{"If", "StatelessIf", "Case", "StatelessCase"};
  if (kinds->count(node.op()) == 0) return false;
  if (node.attr().count(attributes::BRANCHES_DIFFER) > 0) return true;
  const auto shapes = node.attr().find("output_shapes");
  if (shapes == node.attr().end()) return true;
  const auto& list = shapes->second.list().shape();
  return std::any_of(list.begin(), list.end(), [](const tensorflow::TensorShapeProto& shape) {
    return shape.unknown_rank() || std::any_of(shape.dim().begin(), shape.dim().end(),
                                               [](const auto& dim) { return dim.size() < 0; });
  });
}

template <typename Predicate>
bool AnyNode(const Names& roots, const FunctionLibraryDefinition& library, Predicate&& is_one) {
  return !VisitReachable(roots, library, [&](const tensorflow::FunctionDef& function) {
    return std::none_of(function.node_def().begin(), function.node_def().end(), is_one);
  });
}

}  // namespace

void SetExamined(Examined functions) { examined_functions = functions; }

void SetOpsAtRisk(const std::vector<std::string>& ops) {
  Table& table = GlobalTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  table.at_risk = std::make_shared<const Names>(ops.begin(), ops.end());
}

void NoteRefused(const std::string& function) {
  Table& table = GlobalTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  table.refused.insert(function);
}

bool IsScriptOp(const std::string& op) {
  return op == "EagerPyFunc" || op == "PyFunc" || op == "PyFuncStateless";
}

bool CallsPython(const NodeDef& node) {
  return IsScriptOp(node.op()) || HasFlag(node, attributes::CALLS_PYTHON);
}

Names Callees(const NodeDef& node, const FunctionLibraryDefinition& library) {
  Names callees;
  if (library.Contains(node.op())) callees.insert(node.op());
  for (const auto& [name, value] : node.attr()) {
    if (value.has_func()) callees.insert(value.func().name());
    for (const auto& function : value.list().func()) callees.insert(function.name());
  }
  return callees;
}

bool ReachesScriptOp(const NodeDef& node, const FunctionLibraryDefinition& library) {
  return CallsPython(node) || AnyNode(Callees(node, library), library, CallsPython);
}

bool KeepsStreams(const std::string& function, const FunctionLibraryDefinition& library) {
  const auto is_set = [](const NodeDef& node, const char* name) {
    const auto attr = node.attr().find(name);
    return attr != node.attr().end() && attr->second.i() != 0;
  };
  return AnyNode({function}, library, [&is_set](const NodeDef& node) {
    return is_set(node, "seed") || is_set(node, "seed2");
  });
}

bool MayBeRewritten(const std::string& function, const FunctionLibraryDefinition& library) {
  const bool are_examined = ExaminedFunctions() == Examined::kAll;
  if (are_examined && !MisreadValue(function, library).empty()) return true;
  const std::shared_ptr<const Names> examined = ExaminedOps(function, library);
  const auto wants_rewriting = [&examined](const NodeDef& node) {
    return CallsPython(node) || IsMarkedForHost(node) || LetsListGrow(node) ||
           examined->count(node.op()) > 0;
  };
  Names seen;
  std::string name = function;
  while (seen.insert(name).second) {
    if (AnyNode({name}, library, wants_rewriting)) return true;
    if (name != function && WasRefused(name)) return true;
    const auto record = library.FindRecord(name);
    // The graph may lack a forward function that it does not use. Python may know it.
    if (record == nullptr) return name != function;
    if (record->fdef().attr().count(kBackward) > 0 && AnyNode({name}, library, IsOpenConditional)) {
      return true;
    }
    const auto forward = record->fdef().attr().find(kForward);
    if (forward == record->fdef().attr().end()) return false;
    name = forward->second.s();
  }
  return false;
}

bool MayLackXlaKernel(const std::string& function, const FunctionLibraryDefinition& library,
                      const std::string& device_type) {
  const tensorflow::XlaOpRegistry::DeviceRegistration* registration = nullptr;
  if (!tensorflow::XlaOpRegistry::GetCompilationDevice(device_type, &registration)) return false;
  return AnyNode({function}, library, [&](const NodeDef& node) {
    return !library.Contains(node.op()) && !HasXlaKernel(node, device_type);
  });
}

namespace {

// Returns true if a node takes a resource argument of its function and has no XLA kernel.
bool TakesUnknownResource(const NodeDef& node, const tensorflow::FunctionDef& function,
                          const FunctionLibraryDefinition& library) {
  const auto& args = function.signature().input_arg();
  const auto is_resource = [&](const std::string& input) {
    return std::any_of(args.begin(), args.end(), [&](const auto& arg) {
      return arg.type() == tensorflow::DT_RESOURCE && arg.name() == input;
    });
  };
  return std::any_of(node.input().begin(), node.input().end(), is_resource) &&
         Callees(node, library).empty() && !HasXlaKernel(node);
}

// Describes a loop that carries a resource for an op without an XLA kernel; "" if none does. If
// nothing uses the op's results, XLA never sees the op, and the resource ends the process.
std::string RefusedLoop(const std::string& function, const FunctionLibraryDefinition& library) {
  std::string refusal;
  const auto visit_inside = [&](const tensorflow::FunctionDef& inside) {
    for (const NodeDef& node : inside.node_def()) {
      if (!TakesUnknownResource(node, inside, library)) continue;
      refusal = absl::StrCat("a loop carries the resource of {{node ", node.name(), "}}, and ",
                             node.op(), " has no XLA kernel");
      return false;
    }
    return true;
  };
  VisitReachable({function}, library, [&](const tensorflow::FunctionDef& reached) {
    for (const NodeDef& node : reached.node_def()) {
      if (node.op() != "While" && node.op() != "StatelessWhile") continue;
      if (!VisitReachable(Callees(node, library), library, visit_inside)) return false;
    }
    return true;
  });
  return refusal;
}

}  // namespace

std::string RefusedValue(const std::string& function, const FunctionLibraryDefinition& library) {
  const auto record = library.FindRecord(function);
  if (record == nullptr) return "";
  const auto refusal = [](const char* what, const tensorflow::OpDef::ArgDef& value) {
    return absl::StrCat(what, " '", value.name(), "' is of dtype ",
                        tensorflow::DataTypeString(value.type()), ", which XLA has no values for");
  };
  for (const tensorflow::OpDef::ArgDef& arg : record->fdef().signature().input_arg()) {
    if (arg.type() == tensorflow::DT_STRING || arg.type() == tensorflow::DT_VARIANT) {
      return refusal("argument", arg);
    }
  }
  for (const tensorflow::OpDef::ArgDef& result : record->fdef().signature().output_arg()) {
    if (result.type() == tensorflow::DT_VARIANT) return refusal("result", result);
  }
  return RefusedLoop(function, library);
}

namespace {

bool IsOfFourBits(tensorflow::DataType dtype) {
  return dtype == tensorflow::DT_INT4 || dtype == tensorflow::DT_UINT4;
}

// Returns true for an op on a variable of such a dtype.
bool HasMisreadVariable(const NodeDef& node) {
  const auto is_misread = [](const auto& attr) { return IsOfFourBits(attr.second.type()); };
  if (std::none_of(node.attr().begin(), node.attr().end(), is_misread)) return false;
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op).ok()) return false;
  return std::any_of(op->input_arg().begin(), op->input_arg().end(),
                     [](const auto& arg) { return arg.type() == tensorflow::DT_RESOURCE; });
}

}  // namespace

std::string MisreadValue(const std::string& function, const FunctionLibraryDefinition& library) {
  const auto record = library.FindRecord(function);
  if (record == nullptr) return "";
  const char* why = " has four bits, of which XLA has two values in a byte, and TensorFlow has one";
  const tensorflow::OpDef& signature = record->fdef().signature();
  bool has_resources = false;
  for (const tensorflow::OpDef::ArgDef& arg : signature.input_arg()) {
    if (IsOfFourBits(arg.type())) return absl::StrCat("argument '", arg.name(), "'", why);
    has_resources |= arg.type() == tensorflow::DT_RESOURCE;
  }
  for (const tensorflow::OpDef::ArgDef& result : signature.output_arg()) {
    if (IsOfFourBits(result.type())) return absl::StrCat("result '", result.name(), "'", why);
  }
  if (!has_resources || !AnyNode({function}, library, HasMisreadVariable)) return "";
  return absl::StrCat("a variable", why);
}

bool VisitReachable(const Names& roots, const FunctionLibraryDefinition& library,
                    const std::function<bool(const tensorflow::FunctionDef&)>& visit) {
  Names seen = roots;
  std::vector<std::string> pending(roots.begin(), roots.end());
  while (!pending.empty()) {
    const auto record = library.FindRecord(pending.back());
    pending.pop_back();
    if (record == nullptr) continue;
    if (!visit(record->fdef())) return false;
    for (const NodeDef& node : record->fdef().node_def()) {
      for (const std::string& callee : Callees(node, library)) {
        if (seen.insert(callee).second) pending.push_back(callee);
      }
    }
  }
  return true;
}

std::string SerializedReachable(const std::string& function,
                                const FunctionLibraryDefinition& library) {
  std::string serialized;
  VisitReachable({function}, library, [&](const tensorflow::FunctionDef& definition) {
    // Lend the function: a large one takes long to copy. Appended messages merge into one.
    tensorflow::FunctionDefLibrary one;
    one.mutable_function()->UnsafeArenaAddAllocated(
        const_cast<tensorflow::FunctionDef*>(&definition));
    const bool appended = one.AppendToString(&serialized);
    one.mutable_function()->UnsafeArenaReleaseLast();
    return appended;
  });
  return serialized;
}

}  // namespace hostcall
