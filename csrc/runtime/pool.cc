#include "pool.h"

#include <Python.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "gil.h"

namespace hostcall {
namespace {

struct Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  size_t idle = 0;
  size_t announced = 0;  // tasks not begun, with those on their way into the queue
};

// Leaked: its threads are detached, and wait on it until the process is gone.
std::atomic<Pool*> global_pool{nullptr};

// Replaces the pool. A forked child has none of its parent's threads, whatever the pool counts, and
// one of them may hold its mutex.
void ForgetPool() { global_pool = new Pool(); }

Pool& GlobalPool() {
  static const bool prepared = [] {
    ForgetPool();
    pthread_atfork(nullptr, nullptr, &ForgetPool);
    return true;
  }();
  (void)prepared;
  return *global_pool;
}

thread_local bool on_pool_thread = false;
thread_local bool goes_on = false;

void Work(Pool& pool) {
  on_pool_thread = true;
  // One Python thread state for the thread's whole life: a state for each call would lose the
  // thread-local variables of libraries, and cost more than many callbacks do.
  UntilExit([] { return PyGILState_Ensure(); });
  PyEval_SaveThread();
  std::unique_lock<std::mutex> lock(pool.mutex);
  while (true) {
    ++pool.idle;
    pool.wake.wait(lock, [&] { return !pool.tasks.empty(); });
    --pool.idle;
    --pool.announced;
    std::function<void()> task = std::move(pool.tasks.front());
    pool.tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace

void RunOnPool(std::function<void()> task) {
  Pool& pool = GlobalPool();
  bool grow;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    grow = pool.idle < ++pool.announced;
  }
  // First the thread, which may fail to start, and then the task: a task whose call has failed must
  // not be left in the queue.
  try {
    if (grow) std::thread([&pool] { Work(pool); }).detach();
  } catch (...) {
    std::lock_guard<std::mutex> lock(pool.mutex);
    --pool.announced;
    throw;
  }
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    pool.tasks.push_back(std::move(task));
  }
  pool.wake.notify_one();
}

void RunOnPoolOrHere(const std::function<void()>& task) noexcept {
  try {
    RunOnPool(task);
  } catch (...) {
    task();
  }
}

bool OnPoolThread() { return on_pool_thread; }

void Complete(xla::ffi::Promise& promise, std::optional<xla::ffi::Error> error) {
  const bool before = std::exchange(goes_on, true);
  if (error.has_value()) {
    promise.SetError(*std::move(error));
  } else {
    promise.SetAvailable();
  }
  goes_on = before;
}

bool XlaGoesOnHere() { return goes_on; }

}  // namespace hostcall
