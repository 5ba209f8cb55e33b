// One client's connection to a worker: a socket and an arena. One thread at a time may use it.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.h"
#include "channel.h"
#include "worker_client.h"

namespace hostcall::serving {

class Connection {
 public:
  // Says hello over a socket that leads to a worker, and waits until `end` for its welcome. Throws
  // Closed or another Failure.
  Connection(Descriptor socket, uint64_t max_bytes, Clock::time_point end);

  // Throw Closed, BadFrame or DEADLINE_EXCEEDED if the connection has become unusable, and another
  // Failure if the call cannot be made. The worker's answer is the Outcome.
  Outcome Call(const WorkerCall& call, ResultSink& sink, Clock::time_point end);
  Outcome AskShapes(const WorkerCall& call, Shapes& shapes, Clock::time_point end);

  bool IsQuiet() const { return channel_.IsQuiet(); }
  int64_t pid() const { return pid_; }  // the worker's, as it reports

 private:
  // Returns the reply, of kind kResults or kError.
  Frame Ask(Kind kind, std::string_view body, Clock::time_point end);

  Arena arena_;
  Channel channel_;
  uint64_t max_bytes_;
  int64_t pid_ = 0;
  uint32_t number_ = 0;
};

}  // namespace hostcall::serving
