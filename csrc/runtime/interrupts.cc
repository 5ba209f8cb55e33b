#include "interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "fork.h"
#include "gil.h"
#include "pool.h"
#include "text.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall::interrupts {
namespace {

// Returns the time of Python's time.monotonic_ns(). Safe in a signal handler.
int64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Entry {
  int64_t callback;
  int64_t run;
  unsigned long thread;
  Waiting::GiveUp give_up;
  int64_t begun = Now();
};

class Table : public HeldAcrossFork<Table> {
 public:
  int64_t Add(Entry entry) {
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.emplace_hint(entries_.end(), next_, std::move(entry));
    return next_++;
  }

  void Remove(int64_t number) {
    Waiting::GiveUp dropped;  // destroyed without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto node = entries_.extract(number); !node.empty()) {
      dropped = std::move(node.mapped().give_up);
    }
  }

  Waiting::GiveUp Take(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(number);
    return found == entries_.end() ? nullptr : std::exchange(found->second.give_up, nullptr);
  }

  std::map<int64_t, Entry> All() {
    std::lock_guard<std::mutex> lock(mutex_);
    return entries_;
  }

 private:
  int64_t next_ = 0;
  std::map<int64_t, Entry> entries_;
};

nb::object& chooser = *new nb::object();

// The end of a pipe that the handler writes to; -1 without a reader.
std::atomic<int> wake{-1};
std::atomic<void (*)(int)> python_handler{nullptr};

void OnInterrupt(int signal) {
  const int error = errno;
  const int64_t now = Now();
  // First: a program that is given up fails with KeyboardInterrupt. If Python did not know of the
  // Ctrl-C by then, it would raise another one later.
  if (const auto handler = python_handler.load()) handler(signal);
  if (const int fd = wake.load(); fd >= 0) (void)!write(fd, &now, sizeof(now));
  errno = error;
}

// The chooser's answer, made under the GIL.
struct Choice {
  std::vector<int64_t> numbers;
  std::optional<ffi::Error> error;
  bool again = false;
};

Choice Choose(const std::map<int64_t, Entry>& all, int64_t came) {
  Choice choice;
  try {
    nb::list waiting;
    for (const auto& [number, entry] : all) {
      waiting.append(nb::make_tuple(number, entry.callback, entry.run, entry.thread, entry.begun));
    }
    const nb::object chosen = chooser(waiting, came);
    choice.error.emplace(static_cast<ffi::ErrorCode>(nb::cast<int>(chosen[1])), Text(chosen[2]));
    choice.again = nb::cast<bool>(chosen[3]);
    for (const nb::handle number : nb::object(chosen[0])) {
      choice.numbers.push_back(nb::cast<int64_t>(number));
    }
  } catch (nb::python_error& failed) {
    failed.discard_as_unraisable("hostcall: Ctrl-C");
    return {};
  }
  return choice;
}

// Gives up calls. Returns whether to come again soon. `came` is the time of a new Ctrl-C, or 0.
bool GiveUpChosen(int64_t came) {
  if (!PythonIsRunning()) return false;
  const std::map<int64_t, Entry> all = Table::Global().All();
  Choice choice;
  {
    GilHold gil;
    choice = Choose(all, came);
  }
  for (const int64_t number : choice.numbers) {
    if (const auto give_up = Table::Global().Take(number)) give_up(*choice.error);
  }
  return choice.again;
}

void Watch(int fd) {
  constexpr int kSoon = 20;  // milliseconds
  constexpr int kMost = 500;
  pollfd wakes = {fd, POLLIN, 0};
  bool again = false;
  for (int times = 0;; ++times) {
    const int ready = poll(&wakes, 1, again && times < kMost ? kSoon : -1);
    if (ready < 0 && errno != EINTR) return;
    int64_t came = 0;
    if (ready > 0 && read(fd, &came, sizeof(came)) != sizeof(came)) came = 0;
    if (came != 0) times = 0;
    if (came != 0 || again) again = GiveUpChosen(came);
  }
}

// Makes sure that a thread watches for Ctrl-C. A forked child has none of its parent's threads.
void Prepare() {
  static std::mutex* const mutex = new std::mutex();
  static int ends[2] = {-1, -1};  // of the pipe, also while there is no thread to read it
  static const bool forgets = [] {
    pthread_atfork([] { mutex->lock(); }, [] { mutex->unlock(); },
                   [] {
                     wake = -1;
                     for (int& end : ends) close(std::exchange(end, -1));
                     mutex->unlock();
                   });
    return true;
  }();
  (void)forgets;
  std::lock_guard<std::mutex> lock(*mutex);
  if (wake.load() < 0) {
    if (ends[0] < 0) {
      if (pipe2(ends, O_CLOEXEC) != 0) return;
      fcntl(ends[1], F_SETFL, O_NONBLOCK);
    }
    RunOnPool([fd = ends[0]] { Watch(fd); });
    wake = ends[1];
  }
  // Setting a handler in Python puts Python's own in this place again.
  struct sigaction current;
  if (sigaction(SIGINT, nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0) return;
  if (current.sa_handler == &OnInterrupt || current.sa_handler == SIG_IGN ||
      current.sa_handler == SIG_DFL) {
    return;
  }
  python_handler = current.sa_handler;
  current.sa_handler = &OnInterrupt;
  sigaction(SIGINT, &current, nullptr);
}

int64_t AddPrepared(Entry entry) {
  try {
    Prepare();
  } catch (const std::exception&) {
    // No thread can be started: Ctrl-C waits for the calls.
  }
  return Table::Global().Add(std::move(entry));
}

}  // namespace

Waiting::Waiting(const HostCall& call, GiveUp give_up)
    : number_(AddPrepared({call.id, call.run.number, call.thread, std::move(give_up)})) {}

Waiting::~Waiting() { Table::Global().Remove(number_); }

void SetChooser(nb::object function) { chooser = std::move(function); }

int64_t BeginWait(unsigned long thread, RuntimeApi::GiveUp give_up) {
  const auto of_error = [give_up = std::move(give_up)](const ffi::Error& error) {
    const ffi::ErrorCode code = error.errc().value_or(ffi::ErrorCode::kUnknown);
    give_up(static_cast<int>(code), error.message());
  };
  // It has no callback by which to know its starter, and no run.
  return AddPrepared({-1, turns::Run::kUnknown, thread, of_error});
}

void EndWait(int64_t number) { Table::Global().Remove(number); }

}  // namespace hostcall::interrupts
