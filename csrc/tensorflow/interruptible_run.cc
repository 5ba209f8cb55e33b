#include "interruptible_run.h"

#include <string>

#include "module.h"

namespace hostcall {
namespace {

// Runner by which an op finds the calls of its run.
struct RunnerOfRun {
  std::shared_ptr<CallsOfRun> calls;
  InterruptibleRun::Runner runner;

  void operator()(std::function<void()> task) const { runner(std::move(task)); }
};

}  // namespace

std::shared_ptr<CallsOfRun> CallsOfRun::Of(const tensorflow::OpKernelContext& ctx) {
  const InterruptibleRun::Runner* runner = ctx.runner();
  if (runner == nullptr) return nullptr;
  const RunnerOfRun* found = runner->target<RunnerOfRun>();
  return found == nullptr ? nullptr : found->calls;
}

int64_t CallsOfRun::Add(GiveUp give_up) {
  absl::Status error;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t number = next_++;
    if (error_.ok()) {
      calls_.emplace(number, std::move(give_up));
      return number;
    }
    error = error_;
  }
  give_up(error);
  return -1;
}

void CallsOfRun::Remove(int64_t call) {
  GiveUp dropped;  // destroyed after the lock is released
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto node = calls_.extract(call); !node.empty()) dropped = std::move(node.mapped());
}

void CallsOfRun::GiveUpAll(const absl::Status& error) {
  std::map<int64_t, GiveUp> calls;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    error_ = error;
    calls.swap(calls_);
  }
  for (const auto& [number, give_up] : calls) give_up(error);
}

InterruptibleRun::InterruptibleRun(const Runner& runner) {
  const auto calls = std::make_shared<CallsOfRun>(starters::CurrentOrNew());
  runner_ = RunnerOfRun{calls, runner};
  number_ =
      runtime->begin_wait(PyThread_get_thread_ident(), [calls](int code, const std::string& text) {
        calls->GiveUpAll(absl::Status(static_cast<absl::StatusCode>(code), text));
      });
}

InterruptibleRun::~InterruptibleRun() { runtime->end_wait(number_); }

starters::StartedRun StartedRunOf(const tensorflow::OpKernelContext& ctx) {
  if (starters::Current() != nullptr) return starters::Current();
  const std::shared_ptr<CallsOfRun> calls = CallsOfRun::Of(ctx);
  return calls == nullptr ? nullptr : calls->run();
}

}  // namespace hostcall
