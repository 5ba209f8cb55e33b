// Functions that call back into Python, found by their definitions.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace hostcall {

// Sets the ops that XLA may compile to something else than TensorFlow runs.
void SetOpsAtRisk(const std::vector<std::string>& ops);

// The functions in which Python looks for these ops, besides those that call Python.
enum class Examined { kNone, kClusters, kAll };
void SetExamined(Examined functions);

// Notes that something else has replaced a function because XLA refuses it.
void NoteRefused(const std::string& function);

// Returns true if a function or a node has an attribute that is true.
template <typename Definition>
bool HasFlag(const Definition& definition, const std::string& name) {
  const auto attr = definition.attr().find(name);
  return attr != definition.attr().end() && attr->second.b();
}

bool IsScriptOp(const std::string& op);

// Returns true for script ops, and for ops marked because JAX programs in them call Python.
bool CallsPython(const tensorflow::NodeDef& node);

// Returns the names of the functions that a node calls, by its op or by an attribute.
std::unordered_set<std::string> Callees(const tensorflow::NodeDef& node,
                                        const tensorflow::FunctionLibraryDefinition& library);

// Returns true if the node can reach an op that calls Python, through any depth of calls.
bool ReachesScriptOp(const tensorflow::NodeDef& node,
                     const tensorflow::FunctionLibraryDefinition& library);

// Returns true if a function can reach an op that draws random numbers by seeds, whose kernel keeps
// the place in the stream. In graph mode, each call of the function has kernels of its own.
bool KeepsStreams(const std::string& function,
                  const tensorflow::FunctionLibraryDefinition& library);

// Returns true if Python may replace a must-compile function: it, or the function whose gradient it
// is, can reach an op that calls Python, that is marked for partitioning, or that XLA compiles to
// something else than TensorFlow runs. The same goes for gradients of functions that XLA refuses,
// for functions that keep values of branches for a gradient and, if all functions are examined, for
// those whose values XLA misreads. Python does not examine other functions unless XLA refuses them.
bool MayBeRewritten(const std::string& function,
                    const tensorflow::FunctionLibraryDefinition& library);

// Returns true if a function can reach an op without an XLA kernel for devices of a type. XLA does
// not necessarily get to see that op.
bool MayLackXlaKernel(const std::string& function,
                      const tensorflow::FunctionLibraryDefinition& library,
                      const std::string& device_type);

// Describes a value that XLA cannot represent: an argument or a result of the function, or a value
// that a loop in it carries. Returns "" if it has none. If launched, a function with one ends the
// process, or fails after its program has run.
std::string RefusedValue(const std::string& function,
                         const tensorflow::FunctionLibraryDefinition& library);

// Describes an argument, a result or a variable of a function that XLA misreads, as it has two
// integers of four bits in a byte, and TensorFlow has one. Returns "" if there is none.
std::string MisreadValue(const std::string& function,
                         const tensorflow::FunctionLibraryDefinition& library);

// Calls `visit` on `roots` and on each function reached from them, in no particular order, until it
// returns false. Returns true if it never did.
bool VisitReachable(const std::unordered_set<std::string>& roots,
                    const tensorflow::FunctionLibraryDefinition& library,
                    const std::function<bool(const tensorflow::FunctionDef&)>& visit);

// Returns a serialized FunctionDefLibrary with `function` and all functions that it reaches.
std::string SerializedReachable(const std::string& function,
                                const tensorflow::FunctionLibraryDefinition& library);

}  // namespace hostcall
