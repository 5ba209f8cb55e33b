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

// What has become of the calls of one function that XLA compiles, on one device. XLA makes a
// program for each *signature*: the shapes of all inputs, and the values of some.
class Compilations {
 public:
  enum class Verdict {
    kCompile,   // there is a program for this signature, or one may be made
    kWait,      // the function runs by TensorFlow's kernels until the signature comes more often
    kOutgrown,  // it does since there are as many programs as may be
  };

  explicit Compilations(std::string function) : function_(std::move(function)) {}

  // Those of a function, for as long as somebody has them. TensorFlow keeps programs for each
  // owner, which is the resource manager of a device.
  static std::shared_ptr<Compilations> Of(const void* owner, const std::string& function);

  // What to do with a call, which is counted.
  Verdict Count(const std::string& signature);

  // Notes a call that is compiled whatever its signature is.
  void CountCompiled(const std::string& signature);

  // Whether nobody has been told yet that the function has outgrown the bound.
  bool TellOnce();

  const std::string& function() const { return function_; }

  // How many programs there were, and how many runs by TensorFlow's kernels.
  struct Counts {
    int64_t compilations = 0;
    int64_t uncompiled_runs = 0;
  };
  Counts counts(bool reset);

 private:
  void Compile(const std::string& signature);

  const std::string function_;
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
