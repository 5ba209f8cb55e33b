// Launches of compiled programs with callbacks, and the kernels that a must-compile function gets:
// wrappers of the kernel that launches its program, each for one thing that a launch needs, or the
// kernel of a partitioned function.
//
// A launch has a device of its own, by which the calls of its program find their run: TensorFlow
// gives XLA the same number for all runs. But it also passes on the threads of the device, in an
// object of Eigen's, so each launch gets another object for the same threads, whose address is the
// number of the run. A program for a GPU makes its calls on the thread that launches it.
//
// A recorded call keeps data for its gradient while its program runs. XLA does not tell a custom
// call its run, so runs are told apart by time: only the runs that had begun by a moment can ask
// for data that was kept at that moment. Once all of these have ended, the data is dropped. So are
// calls that were begun early and whose program has failed before it took their results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "functions/wrapped_kernel.h"
#include "runtime/host_api.h"

namespace hostcall {

// What the calls of a program need of its launches.
struct LaunchNeeds {
  bool tracks_run;     // true if calls keep data until the program has run
  bool shares_memory;  // true if arrays of callbacks may lie in the program's memory
  bool takes_turns;    // true if calls that have no order must not overlap
};

// Wraps the kernel that launches a program in one that meets these needs, and that does not hold
// TensorFlow's own threads (see RunBesideTensorFlow).
absl::Status LaunchWith(const LaunchNeeds& needs, const KernelRequest& request, KernelPtr* launch);

// Wraps the kernel that launches a program in one that runs it on copies of its variables
// (variable_copies.cc). A program that takes no variables keeps its kernel.
absl::Status RunOnCopies(const KernelRequest& request, KernelPtr* launch);

// Returns the node that calls `function`, a program with regions, in the place of the function of
// `props`. The program takes references for some of that function's arguments, and after all
// arguments the address of the launch's RegionScope (host_region_launch.cc).
absl::StatusOr<std::shared_ptr<const tensorflow::NodeProperties>> RegionLaunchNode(
    const tensorflow::NodeProperties& props, const tensorflow::FunctionDef& function);

// Wraps the kernel of that node in one that takes the arguments of the request's node. `regions`
// are the names of the regions, in the order of their indices.
absl::Status LaunchWithRegions(const KernelRequest& request,
                               const std::vector<std::string>& regions, KernelPtr* launch);

// Wraps the kernel that launches a cluster: counts calls, and runs those that must not be compiled,
// as the cluster gets ever new signatures, with the kernel of `make_plain`. If that might compute
// something else, compiles all calls (bounded_launch.cc).
absl::Status BoundCompilations(const KernelRequest& request, MakeKernel make_plain,
                               KernelPtr* launch);

// Creates the kernel of a StatefulPartitionedCall of `function`, which takes the inputs of the
// requested node and returns its outputs. Users know it as `entry`. A function marked as sequential
// runs on one thread, which may be the caller's own. If it gets resources of another device, the
// kernel that `on_several_devices` makes runs instead (partitioned_function_kernel.cc).
absl::Status CreatePartitionedFunctionKernel(const KernelRequest& request,
                                             const tensorflow::FunctionDef& function,
                                             const std::string& entry,
                                             MakeKernel on_several_devices, KernelPtr* kernel);

// Returns true if a node of a partitioned function calls another of the same partitioning.
bool IsInnerCall(const tensorflow::NodeDef& node);

// Returns true if a node's kernel must note its failure: the executor that runs a function's nodes
// one after the other returns a kernel's error as it is, without the name of the node.
bool NotesErrors(const tensorflow::NodeDef& node);

// Creates the kernel of that node.
absl::Status CreateNotingKernel(const KernelRequest& request, KernelPtr* kernel);

// Finds the run of a call that TensorFlow's XLA makes.
turns::Run FindRun(XLA_FFI_ExecutionContext* context);

// Scope in which the program that this thread is launching is compiled, and a Python function is
// called for that. Running the program would hang: TensorFlow holds its lock until it is compiled.
// Does nothing if a program is compiled only to be shown, without a launch.
class FoldScope {
 public:
  FoldScope();
  ~FoldScope();
  FoldScope(const FoldScope&) = delete;
  FoldScope& operator=(const FoldScope&) = delete;

 private:
  bool* const folds_;  // of the launch, or null
};

}  // namespace hostcall
