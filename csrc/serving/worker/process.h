// A worker process that this process starts.
#pragma once

#include <sys/types.h>

#include <string>

#include "descriptor.h"

namespace hostcall::serving {

class Process {
 public:
  // Starts `PYTHON -m hostcall worker`. Its descriptor 3 and `control()` are the two ends of a
  // connection: the worker gets its clients over it, and ends when it is closed. Throws a Failure.
  explicit Process(const std::string& python);

  int control() const { return control_.get(); }
  pid_t pid() const { return pid_; }
  double age() const { return Seconds(Clock::now() - started_).count(); }

  bool IsRunning();

  // Returns how the process ended, e.g. "it was killed by signal 9 (Killed)", or "" if it still
  // runs. Waits a moment for a process that is about to end.
  std::string HowEnded();

 private:
  Descriptor control_;
  pid_t pid_ = -1;
  Clock::time_point started_ = Clock::now();
  bool ended_ = false;
  std::string how_;
};

}  // namespace hostcall::serving
