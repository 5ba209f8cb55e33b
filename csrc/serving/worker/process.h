// A worker's process that this one starts.
#pragma once

#include <sys/types.h>

#include <string>

#include "descriptor.h"

namespace hostcall::serving {

class Process {
 public:
  // Starts `PYTHON -m hostcall worker`. Its descriptor 3 is one end of a connection of which
  // `control()` is the other: the worker gets its clients by it, and ends when it is closed. Throws
  // a Failure.
  explicit Process(const std::string& python);

  int control() const { return control_.get(); }
  pid_t pid() const { return pid_; }
  double age() const { return Seconds(Clock::now() - started_).count(); }

  bool IsRunning();

  // How it has ended, such as "it was killed by signal 9 (Killed)"; waits a moment for one that is
  // about to. "" where it still runs.
  std::string HowEnded();

 private:
  Descriptor control_;
  pid_t pid_ = -1;
  Clock::time_point started_ = Clock::now();
  bool ended_ = false;
  std::string how_;
};

}  // namespace hostcall::serving
