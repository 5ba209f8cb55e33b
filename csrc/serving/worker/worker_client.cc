#include "worker_client.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "failure.h"
#include "pool.h"

namespace hostcall::serving {
namespace {

// Pool of a process. A forked child has its own, since it must not talk over the connections of its
// parent. Never freed: threads may still call when the process ends.
struct OwnedPool {
  OwnedPool() : owner(getpid()), pool(ReadSettings(&std::getenv)) {}

  const pid_t owner;
  Pool pool;
};

Pool& PoolOfProcess() {
  static std::atomic<OwnedPool*> current{nullptr};
  OwnedPool* known = current.load(std::memory_order_acquire);
  if (known != nullptr && known->owner == getpid()) return known->pool;
  auto made = std::make_unique<OwnedPool>();
  // If several threads meet here, they use the first one's pool.
  if (current.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
    return made.release()->pool;
  }
  return known->pool;
}

// Runs `use` on the pool, and turns exceptions into an Outcome.
template <typename Use>
Outcome WithPool(const Use& use) {
  try {
    return use(PoolOfProcess());
  } catch (const Failure& failure) {
    return failure.outcome();
  } catch (const std::bad_alloc&) {
    return {kResourceExhausted, "hostcall: a call of a Python worker needs too much memory."};
  } catch (const std::exception& error) {
    return {kInternal, std::string("hostcall: a call of a Python worker failed: ") + error.what()};
  }
}

// Returns the text in quotes after `key`, in the part of the token that describes the function.
std::string_view TextAfter(std::string_view function, std::string_view key) {
  const size_t begin = function.find(key);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = function.substr(begin + key.size());
  return rest.substr(0, rest.find('"'));
}

}  // namespace

Outcome CallWorker(const WorkerCall& call, ResultSink& sink) {
  return WithPool([&](Pool& pool) { return pool.Call(call, sink); });
}

Outcome AskShapes(const WorkerCall& call, Shapes& shapes) {
  return WithPool([&](Pool& pool) { return pool.AskShapes(call, shapes); });
}

std::string LabelOfToken(std::string_view token) {
  constexpr size_t kShown = 60;
  // Expect hostcall's compact JSON. A name, if the user gave one, comes after the place.
  const size_t begin = token.find("\"function\":{");
  const std::string_view all = begin == std::string_view::npos ? "" : token.substr(begin);
  const std::string_view function = all.substr(0, all.find('}'));
  std::string_view label = TextAfter(function, "\"name\":\"");
  if (label.empty()) label = TextAfter(function, "\"place\":\"");
  if (label.empty()) label = token;
  return std::string(label.substr(0, kShown)) + (label.size() > kShown ? "..." : "");
}

}  // namespace hostcall::serving
