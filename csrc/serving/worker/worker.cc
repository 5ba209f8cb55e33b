#include "worker.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "failure.h"

namespace hostcall::serving {
namespace {

// A worker that has run for this many seconds may restart at once.
constexpr double kLongEnough = 30;
constexpr double kLongestPause = 30;

// Returns the seconds until the next start after this many early ends: 0 after the first.
double PauseAfter(int early_ends) {
  return early_ends < 2 ? 0 : std::min(kLongestPause, std::exp2(early_ends - 2));
}

Failure CannotStart(const std::string& how) {
  return Failure(kUnavailable,
                 "hostcall: the Python worker cannot be started: " + how +
                     ". What it says is in this process's stderr. HOSTCALL_WORKER_PYTHON has to "
                     "name a Python that can import hostcall and the functions' modules.");
}

// Opens a connection over a socket. Throws Closed, or a Failure for the user.
std::unique_ptr<Connection> SayHello(Descriptor socket, const Settings& settings) {
  try {
    return std::make_unique<Connection>(std::move(socket), settings.bytes,
                                        After(settings.start_timeout));
  } catch (const BadFrame& bad) {
    throw Failure(kUnavailable,
                  std::string("hostcall: no Python worker of this version of hostcall answers: ") +
                      bad.what() + ".");
  } catch (const Failure& failure) {
    if (failure.outcome().code != kDeadlineExceeded) throw;
    throw Failure(kUnavailable,
                  "hostcall: the Python worker does not answer within the seconds that "
                  "HOSTCALL_WORKER_START allows.");
  }
}

}  // namespace

std::unique_ptr<Connection> ForeignWorker::Connect() {
  Descriptor socket = ConnectTo(path_, After(settings_.start_timeout));
  if (!socket) {
    throw Failure(kUnavailable,
                  "hostcall: no Python worker listens at " + path_ +
                      ", which HOSTCALL_WORKER_SOCKET names. Start one:\n\n    hostcall worker "
                      "--socket " +
                      path_ + " --allow MODULE");
  }
  try {
    return SayHello(std::move(socket), settings_);
  } catch (const Closed&) {
    throw Failure(kUnavailable, "hostcall: the Python worker at " + path_ + " has ended.");
  }
}

std::string ForeignWorker::HowEnded(int64_t pid) {
  return "process " + std::to_string(pid) + " at " + path_ + " has ended, or closed the connection";
}

std::unique_ptr<Connection> StartedWorker::Connect() {
  for (bool again = true;; again = false) {
    auto [socket, pid] = NewSocket();
    try {
      std::unique_ptr<Connection> connection = SayHello(std::move(socket), settings_);
      last_ready_ = pid;
      return connection;
    } catch (const Closed&) {
      // A process that was ready before may have ended unnoticed.
      const bool was_ready = last_ready_.load() == pid;
      const std::string how = HowEnded(pid);
      if (!again || !was_ready) throw CannotStart(how);
    }
  }
}

std::string StartedWorker::HowEnded(int64_t pid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (process_ && process_->pid() == pid) {
    if (process_->HowEnded().empty()) return "it has closed the connection";
    NoteEnd();
  }
  return last_end_;
}

std::pair<Descriptor, int64_t> StartedWorker::NewSocket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [ours, theirs] = MakeSocketPair();
  EnsureRunning();
  bool sent = SendDescriptor(process_->control(), theirs.get());
  // Either the process is about to end, or the system's queue of its clients is full.
  if (!sent && !process_->HowEnded().empty()) {
    EnsureRunning();
    sent = SendDescriptor(process_->control(), theirs.get());
  }
  if (!sent) {
    const std::string how = process_->HowEnded();
    if (!how.empty()) throw CannotStart(how);
    throw Failure(kUnavailable, "hostcall: the Python worker takes no more connections.");
  }
  return {std::move(ours), process_->pid()};
}

void StartedWorker::EnsureRunning() {
  if (process_ && !process_->IsRunning()) NoteEnd();
  if (process_) return;
  const double wait = Seconds(next_start_ - Clock::now()).count();
  if (early_ends_ > 0 && wait > 0) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f", wait);
    throw CannotStart("it has ended " + std::to_string(early_ends_) + " times, the last time " +
                      last_end_ + "; it is started again in " + text + " seconds");
  }
  process_.emplace(settings_.python);
}

void StartedWorker::NoteEnd() {
  early_ends_ = process_->age() > kLongEnough ? 0 : early_ends_ + 1;
  next_start_ = After(PauseAfter(early_ends_));
  last_end_ = process_->HowEnded();
  process_.reset();
}

}  // namespace hostcall::serving
