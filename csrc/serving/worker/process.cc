#include "process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "channel.h"
#include "failure.h"

namespace hostcall::serving {
namespace {

constexpr int kControl = 3;

class SpawnOptions {
 public:
  explicit SpawnOptions(int control) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, control, kControl);
    posix_spawnattr_init(&attributes_);
    // Undo the starting thread's settings. Use a separate group, as Ctrl-C is the server's.
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGCHLD);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Removes our library from LD_PRELOAD: hostcall has its own kernels for the same ops.
std::string WithoutOurLibrary(std::string_view preload) {
  std::string kept;
  while (!preload.empty()) {
    const size_t end = std::min(preload.find_first_of(" :"), preload.size());
    const std::string_view library = preload.substr(0, end);
    if (library.find("libhostcall_serving") == std::string_view::npos) {
      kept.append(kept.empty() ? "" : ":").append(library);
    }
    preload.remove_prefix(std::min(end + 1, preload.size()));
  }
  return kept;
}

std::vector<std::string> Environment() {
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.substr(0, kPreload.size()) != kPreload) {
      variables.emplace_back(text);
      continue;
    }
    const std::string kept = WithoutOurLibrary(text.substr(kPreload.size()));
    if (!kept.empty()) variables.push_back(std::string(kPreload) + kept);
  }
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "it was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "it ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Process::Process(const std::string& python) {
  auto [ours, theirs] = MakeSocketPair();
  const SpawnOptions options(theirs.get());
  std::vector<std::string> words = {python, "-m", "hostcall", "worker", "--control-fd", "3"};
  std::vector<std::string> environment = Environment();
  const int error = posix_spawnp(&pid_, python.c_str(), options.actions(), options.attributes(),
                                 Pointers(words).data(), Pointers(environment).data());
  if (error != 0) {
    throw Failure(kFailedPrecondition, "hostcall: '" + python +
                                           "', which HOSTCALL_WORKER_PYTHON names, cannot be "
                                           "started: " +
                                           std::strerror(error) + ".");
  }
  control_ = std::move(ours);
}

bool Process::IsRunning() {
  if (ended_) return false;
  int status = 0;
  const pid_t found = waitpid(pid_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return true;
  ended_ = true;
  // The status is lost if the program has the system forget its children.
  how_ = found == pid_ ? Describe(status) : "it has ended";
  return false;
}

std::string Process::HowEnded() {
  // The connections of a process close before it can be waited for.
  const Clock::time_point end = After(2);
  while (IsRunning() && Clock::now() < end) poll(nullptr, 0, 2);
  return how_;
}

}  // namespace hostcall::serving
