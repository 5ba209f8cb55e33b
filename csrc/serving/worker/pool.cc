#include "pool.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "failure.h"

namespace hostcall::serving {
namespace {

std::string CallOf(const WorkerCall& call) {
  return "the Python function " + LabelOfToken(call.token);
}

Outcome NotSet(const WorkerCall& call) {
  return {kFailedPrecondition,
          "hostcall: " + CallOf(call) +
              " is called in a process without Python, and no worker is named that could call it. "
              "Start one, and name it in the environment of this process:\n\n"
              "    hostcall worker --socket /run/user/1000/hostcall.socket --allow MODULE\n"
              "    export HOSTCALL_WORKER_SOCKET=/run/user/1000/hostcall.socket\n\n"
              "or have this process start one:\n\n"
              "    export HOSTCALL_WORKER_PYTHON=/path/to/python HOSTCALL_ALLOW=MODULE"};
}

Outcome Overrun(const WorkerCall& call, double timeout) {
  std::ostringstream message;
  message << "hostcall: " << CallOf(call) << " has run in its worker for more than " << timeout
          << " seconds, which HOSTCALL_WORKER_TIMEOUT allows. It may still run there.";
  return {kDeadlineExceeded, message.str()};
}

Outcome Lost(const WorkerCall& call, const std::string& how) {
  return {kUnavailable, "hostcall: the Python worker was lost in a call of " + CallOf(call) + ": " +
                            how + ". The function may have run, in part or as a whole."};
}

}  // namespace

// Place of one call, from construction to destruction.
class Pool::Place {
 public:
  Place(Pool& pool, Clock::time_point end, const WorkerCall& call) : pool_(pool) {
    std::unique_lock<std::mutex> lock(pool.mutex_);
    const Settings& settings = pool.settings_;
    if (pool.running_ >= settings.calls) Wait(lock, end, call);
    ++pool.running_;
    member_ = std::min_element(
        pool.members_.begin(), pool.members_.end(),
        [](const Member& one, const Member& other) { return one.busy < other.busy; });
    ++member_->busy;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    const std::lock_guard<std::mutex> lock(pool_.mutex_);
    --member_->busy;
    --pool_.running_;
    pool_.changed_.notify_one();
  }

  Worker& worker() { return *member_->worker; }

  // Returns an idle connection whose worker is still there, or null.
  std::unique_ptr<Connection> TakeIdle() {
    const std::lock_guard<std::mutex> lock(pool_.mutex_);
    auto& idle = member_->idle;
    while (!idle.empty()) {
      std::unique_ptr<Connection> last = std::move(idle.back());
      idle.pop_back();
      if (last->IsQuiet()) return last;
    }
    return nullptr;
  }

  void GiveBack(std::unique_ptr<Connection> connection) {
    const std::lock_guard<std::mutex> lock(pool_.mutex_);
    member_->idle.push_back(std::move(connection));
  }

  void MoveToNext() {
    const std::lock_guard<std::mutex> lock(pool_.mutex_);
    --member_->busy;
    if (++member_ == pool_.members_.end()) member_ = pool_.members_.begin();
    ++member_->busy;
  }

 private:
  void Wait(std::unique_lock<std::mutex>& lock, Clock::time_point end, const WorkerCall& call) {
    if (pool_.waiting_ >= pool_.settings_.queue) {
      throw Failure(kResourceExhausted,
                    "hostcall: " + CallOf(call) +
                        " cannot be called: " + std::to_string(pool_.running_) +
                        " calls of Python workers run, and " + std::to_string(pool_.waiting_) +
                        " wait. HOSTCALL_WORKER_CALLS and HOSTCALL_WORKER_QUEUE set the limits.");
    }
    ++pool_.waiting_;
    const bool free = pool_.changed_.wait_until(
        lock, end, [this] { return pool_.running_ < pool_.settings_.calls; });
    --pool_.waiting_;
    if (free) return;
    throw Failure(kDeadlineExceeded,
                  "hostcall: a call of " + CallOf(call) +
                      " has waited for other calls of Python workers to end, and "
                      "HOSTCALL_WORKER_TIMEOUT is over.");
  }

  Pool& pool_;
  std::vector<Member>::iterator member_;
};

Pool::Pool(Settings settings) : settings_(std::move(settings)) {
  for (const std::string& path : settings_.sockets) {
    members_.emplace_back().worker = std::make_unique<ForeignWorker>(path, settings_);
  }
  if (settings_.python.empty()) return;
  for (size_t i = 0; i < settings_.workers; ++i) {
    members_.emplace_back().worker = std::make_unique<StartedWorker>(settings_);
  }
}

Outcome Pool::Call(const WorkerCall& call, ResultSink& sink) {
  return With(call, [&](Connection& connection, Clock::time_point end) {
    return connection.Call(call, sink, end);
  });
}

Outcome Pool::AskShapes(const WorkerCall& call, Shapes& shapes) {
  return With(call, [&](Connection& connection, Clock::time_point end) {
    return connection.AskShapes(call, shapes, end);
  });
}

Outcome Pool::With(const WorkerCall& call, const Use& use) {
  if (!settings_.is_set()) return NotSet(call);
  Place place(*this, After(settings_.timeout), call);
  std::unique_ptr<Connection> connection = Connect(place);
  try {
    Outcome outcome = use(*connection, After(settings_.timeout));
    place.GiveBack(std::move(connection));
    return outcome;
  } catch (const Closed&) {
    return Lost(call, place.worker().HowEnded(connection->pid()));
  } catch (const BadFrame& bad) {
    return Lost(call, std::string("what it has sent is not of the protocol: ") + bad.what());
  } catch (const Failure& failure) {
    if (failure.outcome().code == kDeadlineExceeded) return Overrun(call, settings_.timeout);
    throw;
  }
}

std::unique_ptr<Connection> Pool::Connect(Place& place) {
  for (size_t others = members_.size() - 1;; --others) {
    if (auto idle = place.TakeIdle()) return idle;
    try {
      return place.worker().Connect();
    } catch (const Failure& failure) {
      if (others == 0 || failure.outcome().code != kUnavailable) throw;
    }
    place.MoveToNext();
  }
}

}  // namespace hostcall::serving
