// Tracking of the runs of compiled programs with callbacks: their threads, beginnings and ends.
//
// A program that calls Python holds its thread until the callbacks have returned. On one of
// TensorFlow's few inter-op threads, a callback that runs a graph itself would wait for ever. So
// the program runs on a thread of the runtime's pool instead.
//
// A recorded call keeps data for its gradient while its program runs. XLA does not tell a custom
// call its run, so runs are told apart by time: only the runs that had begun by a moment can ask
// for data that was kept at that moment. Once all of these have ended, the data is dropped. So are
// calls that were begun early and whose program has failed before it took their results.
//
// Memory that callbacks borrow is kept while they hold on to it: see buffer_provider.h.
#pragma once

#include <functional>

#include "functions/wrapped_kernel.h"

namespace hostcall {

struct RunTracking {
  bool tracks_run;     // true if calls keep data until the program has run
  bool shares_memory;  // true if arrays of callbacks may lie in the program's memory
  bool takes_turns;    // true if calls that have no order must not overlap
};

// Replaces `launch` with a kernel that does all this.
absl::Status TrackRuns(const RunTracking& scope, const KernelRequest& request, KernelPtr* launch);

// Runs a task that may hold its thread for long: on this thread, unless it is TensorFlow's own, and
// else on one of the pool's. Returns an error if no thread could be had.
absl::Status RunBesideTensorFlow(std::function<void()> task);

}  // namespace hostcall
