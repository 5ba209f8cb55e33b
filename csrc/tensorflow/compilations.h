// How often clusters are compiled, and how often they may be.
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

// The programs of one function on one device. XLA makes one for each *signature*: the shapes of all
// inputs, and the values of some. Clusters with the same function have them in common.
class Programs {
 public:
  bool Have(const std::string& signature);

  // Whether there was none for this signature; there is from now on.
  bool Add(const std::string& signature);

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> signatures_;
};

// What has become of the calls of one cluster, which XLA compiles, on one device.
class Compilations {
 public:
  enum class Verdict {
    kCompile,   // there is a program for this signature, or one may be made
    kWait,      // the function runs by TensorFlow's kernels until the signature comes more often
    kOutgrown,  // it does since there are as many programs as may be
  };

  Compilations(std::string cluster, std::shared_ptr<Programs> programs)
      : cluster_(std::move(cluster)), programs_(std::move(programs)) {}

  // Those of a cluster with that function, for as long as somebody has them. TensorFlow keeps
  // programs for each owner, which is the resource manager of a device.
  static std::shared_ptr<Compilations> Of(const void* owner, const std::string& cluster,
                                          const std::string& function);

  // What to do with a call, which is counted.
  Verdict Count(const std::string& signature);

  // Notes a call that is compiled whatever its signature is.
  void CountCompiled(const std::string& signature);

  // Whether nobody has been told yet that the function has outgrown the bound.
  bool TellOnce();

  const std::string& cluster() const { return cluster_; }

  // How many programs were made for this cluster, and how many runs by TensorFlow's kernels.
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
  std::unordered_map<std::string, int> waiting_;  // how often each has come
  std::atomic<int64_t> compilations_{0};          // no mutex: a forked child reads them, too
  std::atomic<int64_t> uncompiled_runs_{0};
  bool told_ = false;
};

// Defines the Python side: the bound, and the counts.
void DefineCompilations(nanobind::module_& m);

}  // namespace hostcall
