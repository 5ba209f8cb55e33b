#include "turns.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "fork.h"
#include "pool.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall::turns {
namespace {

using Task = std::function<void()>;

struct Turn {
  int64_t number;
  std::vector<Task> waiting;  // the first has waited longest
};

// The runs with a call under way: a handful, as each has a thread or waits in another one.
class Runs : public HeldAcrossFork<Runs> {
 public:
  bool TryBegin(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (Find(number) != runs_.end()) return false;
    runs_.push_back({number, {}});
    return true;
  }

  // Begins, or queues the task and leaves it empty.
  bool BeginOrWait(int64_t number, Task& task) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto run = Find(number);
    if (run == runs_.end()) {
      runs_.push_back({number, {}});
      return true;
    }
    run->waiting.push_back(std::move(task));
    return false;
  }

  // Returns the task that now has the turn, or an empty one.
  Task Next(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto run = Find(number);
    if (run == runs_.end()) return nullptr;
    if (!run->waiting.empty()) {
      Task next = std::move(run->waiting.front());
      run->waiting.erase(run->waiting.begin());
      return next;
    }
    if (run != runs_.end() - 1) *run = std::move(runs_.back());
    runs_.pop_back();
    return nullptr;
  }

 private:
  std::vector<Turn>::iterator Find(int64_t number) {
    return std::find_if(runs_.begin(), runs_.end(),
                        [number](const Turn& run) { return run.number == number; });
  }

  std::vector<Turn> runs_;
};

}  // namespace

Run RunOf(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context) {
  const RunFinder& finder = Host().runs;
  if (finder.find != nullptr && finder.xla == api) return finder.find(context);
  // XLA before TensorFlow 2.20 has a shorter table.
  constexpr size_t kNeeded =
      offsetof(XLA_FFI_Api, XLA_FFI_RunId_Get) + sizeof(XLA_FFI_Api::XLA_FFI_RunId_Get);
  if (api == nullptr || api->struct_size < kNeeded || api->XLA_FFI_RunId_Get == nullptr) {
    return {};
  }
  XLA_FFI_RunId_Get_Args args{};
  args.struct_size = XLA_FFI_RunId_Get_Args_STRUCT_SIZE;
  args.ctx = context;
  if (XLA_FFI_Error* error = api->XLA_FFI_RunId_Get(&args)) {
    xla::ffi::internal::DestroyError(api, error);
    return {};
  }
  return {args.run_id};
}

bool TryBegin(int64_t run) { return run == Run::kUnknown || Runs::Global().TryBegin(run); }

void RunInTurn(int64_t run, Task task) {
  if (run != Run::kUnknown && !Runs::Global().BeginOrWait(run, task)) return;
  try {
    RunOnPool(std::move(task));
  } catch (...) {
    End(run);
    throw;
  }
}

void End(int64_t run) noexcept {
  if (run == Run::kUnknown) return;
  if (const Task next = Runs::Global().Next(run)) RunOnPoolOrHere(next);
}

}  // namespace hostcall::turns
