// Counts of the compilations of clusters, and their bound.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace hostcall {

// Programs of one function on one device. XLA makes one for each *signature*: the shapes of all
// inputs, and the values of some. Clusters with the same function share them.
class Programs {
 public:
  bool Have(const std::string& signature);

  // Adds a program for this signature. Returns true if it had none.
  bool Add(const std::string& signature);

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> signatures_;
};

// Counts of the calls of one cluster, which XLA compiles, on one device.
class Compilations {
 public:
  enum class Verdict {
    kCompile,   // a program for this signature exists, or may be made
    kWait,      // TensorFlow's kernels run the function until the signature comes more often
    kOutgrown,  // they do because the bound of programs is reached
  };

  Compilations(std::string cluster, std::shared_ptr<Programs> programs)
      : cluster_(std::move(cluster)), programs_(std::move(programs)) {}

  // Returns the counts of a cluster with that function, which live while a caller holds them.
  // TensorFlow keeps programs for each owner, which is the resource manager of a device.
  static std::shared_ptr<Compilations> Of(const void* owner, const std::string& cluster,
                                          const std::string& function);

  // Counts a call, and decides how it runs.
  Verdict Count(const std::string& signature);

  // Counts a call that is compiled regardless of its signature.
  void CountCompiled(const std::string& signature);

  // Returns true once, so that users hear only once that the function has outgrown the bound.
  bool TellOnce();

  const std::string& cluster() const { return cluster_; }

  // Numbers of programs made for this cluster, and of runs by TensorFlow's kernels.
  struct Counts {
    int64_t compilations = 0;
    int64_t uncompiled_runs = 0;
  };
  Counts counts(bool reset);

 private:
  void Compile(const std::string& signature);

  const std::string cluster_;
  const std::shared_ptr<Programs> programs_;
  std::mutex mutex_;
  std::unordered_set<std::string> compiled_;
  std::unordered_map<std::string, int> waiting_;  // number of calls with each
  std::atomic<int64_t> compilations_{0};          // no mutex: a forked child reads them, too
  std::atomic<int64_t> uncompiled_runs_{0};
  bool told_ = false;
};

// Defines the Python side: the bound, and the counts.
void DefineCompilations(nanobind::module_& m);

}  // namespace hostcall
