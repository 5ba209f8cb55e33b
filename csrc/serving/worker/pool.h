// Workers and their connections, which many threads share.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "settings.h"
#include "worker.h"
#include "worker_client.h"

namespace hostcall::serving {

class Pool {
 public:
  explicit Pool(Settings settings);

  // Act like `CallWorker` and `AskShapes`, but throw a Failure or std::bad_alloc.
  Outcome Call(const WorkerCall& call, ResultSink& sink);
  Outcome AskShapes(const WorkerCall& call, Shapes& shapes);

 private:
  struct Member {
    std::unique_ptr<Worker> worker;
    std::vector<std::unique_ptr<Connection>> idle;
    size_t busy = 0;
  };
  class Place;  // of one running call
  using Use = std::function<Outcome(Connection&, Clock::time_point end)>;

  Outcome With(const WorkerCall& call, const Use& use);
  // Returns a connection to the member, or to another one if the member does not answer.
  std::unique_ptr<Connection> Connect(Place& place);

  const Settings settings_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Member> members_;
  size_t running_ = 0;
  size_t waiting_ = 0;
};

}  // namespace hostcall::serving
