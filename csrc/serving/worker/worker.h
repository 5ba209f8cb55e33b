// A worker as its clients see it: it gives them connections, and tells how it has ended.
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

  // Returns a new connection, and starts the worker first if need be. Throws a Failure.
  virtual std::unique_ptr<Connection> Connect() = 0;

  // Returns a message's text on how the worker with this pid, which closed a connection, ended.
  virtual std::string HowEnded(int64_t pid) = 0;
};

// Worker that another program starts, at the path of a socket.
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

// Worker that this process starts, and restarts when it has ended; after growing pauses if it ends
// early.
class StartedWorker : public Worker {
 public:
  explicit StartedWorker(const Settings& settings) : settings_(settings) {}

  std::unique_ptr<Connection> Connect() override;
  std::string HowEnded(int64_t pid) override;

 private:
  // Returns one end of a new connection and the pid of the process that has the other end.
  std::pair<Descriptor, int64_t> NewSocket();
  void EnsureRunning();
  void NoteEnd();

  const Settings& settings_;
  std::atomic<int64_t> last_ready_{-1};  // the pid of the last process that welcomed a client
  std::mutex mutex_;                     // guards the members below
  std::optional<Process> process_;
  std::string last_end_;
  int early_ends_ = 0;  // in a row
  Clock::time_point next_start_ = Clock::time_point::min();
};

}  // namespace hostcall::serving
