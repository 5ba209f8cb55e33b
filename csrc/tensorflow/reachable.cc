#include "reachable.h"

#include <functional>

namespace hostcall {
namespace {

using tensorflow::AttrValue;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;
using Names = std::unordered_set<std::string>;

// Calls `visit` on each function that is reached, in no particular order, until it returns false.
// Returns whether it never did.
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

}  // namespace

bool IsScriptOp(const std::string& op) {
  return op == "EagerPyFunc" || op == "PyFunc" || op == "PyFuncStateless";
}

bool CallsPython(const NodeDef& node) {
  if (IsScriptOp(node.op())) return true;
  const auto mark = node.attr().find("_hostcall_calls_python");
  return mark != node.attr().end() && mark->second.b();
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
  if (CallsPython(node)) return true;
  const auto has_none = [](const tensorflow::FunctionDef& function) {
    for (const NodeDef& inner : function.node_def()) {
      if (CallsPython(inner)) return false;
    }
    return true;
  };
  return !VisitReachable(Callees(node, library), library, has_none);
}

tensorflow::FunctionDefLibrary ReachableLibrary(const std::string& function,
                                                const FunctionLibraryDefinition& library) {
  tensorflow::FunctionDefLibrary reachable;
  VisitReachable({function}, library, [&](const tensorflow::FunctionDef& definition) {
    *reachable.add_function() = definition;
    return true;
  });
  return reachable;
}

}  // namespace hostcall
