// Where the runs of compiled programs with callbacks take place, when they begin and end.
//
// A program that calls Python holds its thread until the callbacks have returned. Where that is one
// of TensorFlow's few inter-op threads, a callback that runs a graph itself would wait for ever;
// the program then runs on a thread of the runtime's pool.
//
// A recorded call keeps what its gradient needs while its program runs. XLA tells a custom call
// nothing of the run that it belongs to, so runs are told apart by time: what was kept at one
// moment can be asked for by the runs that had begun by then, and by no others. Once all of these
// have ended, it is dropped. So are calls that were begun early and whose program has failed before
// it took their results.
//
// And the memory that callbacks borrow is kept where they hold on to it: see buffer_provider.h.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall {

struct RunTracking {
  bool tracks_run;     // whether calls keep something until the program has run
  bool shares_memory;  // whether arrays of callbacks may lie in the program's memory
  bool takes_turns;    // whether calls that have no order must not overlap
};

// Puts a kernel that sees to all this in the place of `launch`.
absl::Status TrackRuns(const RunTracking& scope, tensorflow::FunctionLibraryRuntime* runtime,
                       const std::shared_ptr<const tensorflow::NodeProperties>& props,
                       std::unique_ptr<tensorflow::OpKernel>* launch);

// A task for another thread, where calls shall see the settings of who has started it.
std::function<void()> OfItsStarter(std::function<void()> task);

// Runs a task that may hold its thread for long: on this one, unless that is TensorFlow's own, and
// else on one of the pool's. The status tells when none could be had.
absl::Status RunBesideTensorFlow(std::function<void()> task);

// Defines the Python side: the pool comes from there, what is kept asks for the moment, and a hook
// hears of what is over.
void DefineRunTracking(nanobind::module_& m);

}  // namespace hostcall
