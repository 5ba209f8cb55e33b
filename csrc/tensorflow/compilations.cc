#include "compilations.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/fork.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// Number of runs by TensorFlow's kernels before a signature is compiled, since it may never come
// again. The first signature is compiled at once.
constexpr int kRunsBefore = 8;

// Limit of waiting signatures. One that came once, before so many others, will hardly come again.
constexpr size_t kMaxWaiting = 1024;

std::atomic<size_t> max_compilations{10};

// Entries by owner, and by the name of a cluster or function.
template <typename T>
using Entries = std::map<std::pair<const void*, std::string>, std::weak_ptr<T>>;

// Leaked: kernels may be destroyed when the process ends.
struct Table {
  std::mutex mutex;
  Entries<Compilations> clusters;
  Entries<Programs> programs;
};
Table& GlobalTable() {
  static Table* table = new Table();
  return *table;
}
std::mutex& TableMutex() { return GlobalTable().mutex; }

// Returns the entry of that name, and makes it if it is missing.
template <typename T, typename... Args>
std::shared_ptr<T> FindOrMake(Entries<T>& entries, const void* owner, const std::string& name,
                              Args&&... args) {
  for (auto it = entries.begin(); it != entries.end();) {
    it = it->second.expired() ? entries.erase(it) : std::next(it);
  }
  std::weak_ptr<T>& entry = entries[{owner, name}];
  std::shared_ptr<T> found = entry.lock();
  if (found == nullptr) entry = found = std::make_shared<T>(std::forward<Args>(args)...);
  return found;
}

}  // namespace

std::shared_ptr<Compilations> Compilations::Of(const void* owner, const std::string& cluster,
                                               const std::string& function) {
  Table& table = GlobalTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  std::shared_ptr<Programs> programs = FindOrMake(table.programs, owner, function);
  return FindOrMake(table.clusters, owner, cluster, cluster, std::move(programs));
}

bool Programs::Have(const std::string& signature) {
  std::lock_guard<std::mutex> lock(mutex_);
  return signatures_.count(signature) > 0;
}

bool Programs::Add(const std::string& signature) {
  std::lock_guard<std::mutex> lock(mutex_);
  return signatures_.insert(signature).second;
}

Compilations::Verdict Compilations::Count(const std::string& signature) {
  const size_t bound = max_compilations.load(std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex_);
  if (compiled_.count(signature) > 0) return Verdict::kCompile;
  if (compiled_.size() >= bound) {
    waiting_.clear();
    if (programs_->Have(signature)) return Verdict::kCompile;
    ++uncompiled_runs_;
    return Verdict::kOutgrown;
  }
  if (!compiled_.empty() && !programs_->Have(signature)) {
    if (waiting_.size() >= kMaxWaiting) waiting_.clear();
    if (++waiting_[signature] <= kRunsBefore) {
      ++uncompiled_runs_;
      return Verdict::kWait;
    }
    waiting_.erase(signature);
  }
  Compile(signature);
  return Verdict::kCompile;
}

void Compilations::CountCompiled(const std::string& signature) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (compiled_.count(signature) == 0) Compile(signature);
}

bool Compilations::TellOnce() {
  std::lock_guard<std::mutex> lock(mutex_);
  return !std::exchange(told_, true);
}

Compilations::Counts Compilations::counts(bool reset) {
  if (!reset) return {compilations_, uncompiled_runs_};
  return {compilations_.exchange(0), uncompiled_runs_.exchange(0)};
}

void Compilations::Compile(const std::string& signature) {
  compiled_.insert(signature);
  if (programs_->Add(signature)) ++compilations_;
}

void DefineCompilations(nb::module_& m) {
  HoldAcrossFork<TableMutex>();
  m.def(
      "set_max_compilations", [](size_t value) { max_compilations = value; }, nb::arg("value"),
      "Sets how many signatures of one cluster are compiled.");
  m.def(
      "compilations",
      [](bool reset) {
        std::vector<std::tuple<std::string, int64_t, int64_t>> found;
        Table& table = GlobalTable();
        std::lock_guard<std::mutex> lock(table.mutex);
        for (const auto& [key, entry] : table.clusters) {
          const std::shared_ptr<Compilations> one = entry.lock();
          if (one == nullptr) continue;
          const Compilations::Counts counts = one->counts(reset);
          found.emplace_back(one->cluster(), counts.compilations, counts.uncompiled_runs);
        }
        return found;
      },
      nb::arg("reset"),
      "For each function that is compiled within a partitioned one: its name, how many programs "
      "XLA has made of it, and how often it ran by TensorFlow's kernels.");
}

}  // namespace hostcall
