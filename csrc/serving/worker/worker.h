// A worker as its clients see it: where connections with it come from, and how it has ended.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "connection.h"
#include "process.h"
#include "settings.h"

namespace hostcall::serving {

class Worker {
 public:
  virtual ~Worker() = default;

  // A new connection, with a worker that is started first if need be. Throws a Failure.
  virtual std::unique_ptr<Connection> Connect() = 0;

  // What a message says of the worker with this pid, which has closed a connection.
  virtual std::string HowEnded(int64_t pid) = 0;
};

// One that somebody else starts, at the path of a socket.
class ForeignWorker : public Worker {
 public:
  ForeignWorker(std::string path, const Settings& settings)
      : path_(std::move(path)), settings_(settings) {}

  std::unique_ptr<Connection> Connect() override;
  std::string HowEnded(int64_t pid) override;

 private:
  std::string path_;
  const Settings& settings_;
};

// One that this process starts, and starts again when it has ended; later each time where it ends
// soon.
class StartedWorker : public Worker {
 public:
  explicit StartedWorker(const Settings& settings) : settings_(settings) {}

  std::unique_ptr<Connection> Connect() override;
  std::string HowEnded(int64_t pid) override;

 private:
  // The end of a new connection whose other end the process has got, and its pid.
  std::pair<Descriptor, int64_t> NewSocket();
  void EnsureRunning();
  void NoteEnd();

  const Settings& settings_;
  std::atomic<int64_t> last_ready_{-1};  // the pid of the last process that welcomed a client
  std::mutex mutex_;                     // guards what follows
  std::optional<Process> process_;
  std::string last_end_;
  int early_ends_ = 0;  // one after the other
  Clock::time_point next_start_ = Clock::time_point::min();
};

}  // namespace hostcall::serving
