// Which functions call back into Python, seen from their definitions.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace hostcall {

// Whether functions with assertions are rewritten, so that these are checked.
void SetChecksAssertions(bool value);

// Sets the ops that XLA may get wrong.
void SetOpsAtRisk(const std::vector<std::string>& ops);

// Sets whether Python looks for these in functions that XLA compiles as they are.
void SetChecksSizes(bool value);

// Notes that something else has taken the place of a function since XLA refuses it.
void NoteRefused(const std::string& function);

bool IsScriptOp(const std::string& op);

// True for script ops, and for ops that are marked since programs of JAX's in them call Python.
bool CallsPython(const tensorflow::NodeDef& node);

// The names of the functions that a node calls: by its op, or by an attribute.
std::unordered_set<std::string> Callees(const tensorflow::NodeDef& node,
                                        const tensorflow::FunctionLibraryDefinition& library);

// True when an op that calls Python can be reached from the node, through any depth of calls.
bool ReachesScriptOp(const tensorflow::NodeDef& node,
                     const tensorflow::FunctionLibraryDefinition& library);

// Whether Python may have something else take the place of a must-compile function: from it, or
// from one whose gradient it is, an op can be reached that calls Python, one for which
// partitioning was asked, or one that XLA compiles to something else than TensorFlow runs. The same
// goes for gradients of functions that XLA refuses, and for functions that keep values of branches
// for a gradient. Python has no look at other functions, unless XLA refuses them.
bool MayBeRewritten(const std::string& function,
                    const tensorflow::FunctionLibraryDefinition& library);

// Whether an op can be reached from a function that XLA has no kernel for, for devices of a type.
// Such an op need not be one that XLA gets to see.
bool MayLackXlaKernel(const std::string& function,
                      const tensorflow::FunctionLibraryDefinition& library,
                      const std::string& device_type);

// Says of an argument or a result of the function, or of what a loop in it carries, that XLA has no
// such values, if there is one. Launched, such a function ends the process, or fails when its
// program has run already.
std::string RefusedValue(const std::string& function,
                         const tensorflow::FunctionLibraryDefinition& library);

// Calls `visit` on each function that is reached from `roots`, and on these, in no particular
// order, until it returns false. Returns whether it never did.
bool VisitReachable(const std::unordered_set<std::string>& roots,
                    const tensorflow::FunctionLibraryDefinition& library,
                    const std::function<bool(const tensorflow::FunctionDef&)>& visit);

// A serialized FunctionDefLibrary with `function` and all that it reaches.
std::string SerializedReachable(const std::string& function,
                                const tensorflow::FunctionLibraryDefinition& library);

}  // namespace hostcall
