// Bound on the compilations of clusters that get ever new signatures: TensorFlow's kernels run
// calls that are not compiled.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "functions/call_kernel.h"
#include "functions/reachable.h"
#include "hostcall_attributes.h"
#include "launch.h"
#include "module.h"
#include "python_hooks.h"
#include "runtime/fork.h"
#include "tensorflow/compiler/jit/compilability_check_util.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;
using tensorflow::OpKernelContext;

// Programs of one function on one device. XLA makes one for each *signature*: the shapes of all
// inputs, and the values of some. Clusters with the same function share them.
class Programs {
 public:
  bool Have(const std::string& signature) {
    std::lock_guard<std::mutex> lock(mutex_);
    return signatures_.count(signature) > 0;
  }

  // Adds a program for this signature. Returns true if it had none.
  bool Add(const std::string& signature) {
    std::lock_guard<std::mutex> lock(mutex_);
    return signatures_.insert(signature).second;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> signatures_;
};

// Number of runs by TensorFlow's kernels before a signature is compiled, since it may never come
// again. The first signature is compiled at once.
constexpr int kRunsBefore = 8;

// Limit of waiting signatures. One that came once, before so many others, will hardly come again.
constexpr size_t kMaxWaiting = 1024;

std::atomic<size_t> max_compilations{10};

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

  // Counts a call, and decides how it runs.
  Verdict Count(const std::string& signature) {
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

  // Counts a call that is compiled regardless of its signature.
  void CountCompiled(const std::string& signature) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (compiled_.count(signature) == 0) Compile(signature);
  }

  // Returns true once, so that users hear only once that the function has outgrown the bound.
  bool TellOnce() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !std::exchange(told_, true);
  }

  const std::string& cluster() const { return cluster_; }

  // Returns the numbers of programs made for this cluster, and of runs by TensorFlow's kernels.
  std::pair<int64_t, int64_t> Counts(bool reset) {
    if (!reset) return {compilations_, uncompiled_runs_};
    return {compilations_.exchange(0), uncompiled_runs_.exchange(0)};
  }

 private:
  void Compile(const std::string& signature) {
    compiled_.insert(signature);
    if (programs_->Add(signature)) ++compilations_;
  }

  const std::string cluster_;
  const std::shared_ptr<Programs> programs_;
  std::mutex mutex_;
  std::unordered_set<std::string> compiled_;
  std::unordered_map<std::string, int> waiting_;  // number of calls with each
  std::atomic<int64_t> compilations_{0};          // no mutex: a forked child reads them, too
  std::atomic<int64_t> uncompiled_runs_{0};
  bool told_ = false;
};

// Entries by owner, and by the name of a cluster or function.
template <typename T>
using Entries = std::map<std::pair<const void*, std::string>, std::weak_ptr<T>>;

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

class AllCompilations : public HeldAcrossFork<AllCompilations> {
 public:
  // Returns the counts of a cluster with that function, which live while a caller holds them.
  // TensorFlow keeps programs for each owner, which is the resource manager of a device.
  std::shared_ptr<Compilations> Of(const void* owner, const std::string& cluster,
                                   const std::string& function) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Programs> programs = FindOrMake(programs_, owner, function);
    return FindOrMake(clusters_, owner, cluster, cluster, std::move(programs));
  }

  // Returns each cluster's name with its counts.
  std::vector<std::tuple<std::string, int64_t, int64_t>> Counts(bool reset) {
    std::vector<std::tuple<std::string, int64_t, int64_t>> found;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, entry] : clusters_) {
      const std::shared_ptr<Compilations> one = entry.lock();
      if (one == nullptr) continue;
      const auto [compilations, uncompiled_runs] = one->Counts(reset);
      found.emplace_back(one->cluster(), compilations, uncompiled_runs);
    }
    return found;
  }

 private:
  Entries<Compilations> clusters_;
  Entries<Programs> programs_;
};

template <typename T>
void Append(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendShape(const tensorflow::TensorShape& shape, std::string* bytes) {
  Append(shape.dims(), bytes);
  for (int i = 0; i < shape.dims(); ++i) Append(shape.dim_size(i), bytes);
}

// Appends the shape of a variable if its handle leaves that open.
void AppendVariable(OpKernelContext* ctx, const tensorflow::Tensor& input, std::string* bytes) {
  const auto& handle = input.flat<tensorflow::ResourceHandle>()(0);
  const auto& known = handle.dtypes_and_shapes();
  if (!known.empty() && known[0].shape.IsFullyDefined()) return;
  tensorflow::core::RefCountPtr<tensorflow::Var> variable;
  if (!tensorflow::LookupResource(ctx, handle, &variable).ok()) return;
  tensorflow::tf_shared_lock lock(*variable->mu());
  AppendShape(variable->tensor()->shape(), bytes);
}

class BoundedLaunch : public AsyncOpKernel {
 public:
  BoundedLaunch(tensorflow::OpKernelConstruction* construction,
                std::shared_ptr<Compilations> compilations, std::vector<int> constants,
                MakeKernel make_plain, KernelPtr launch)
      : AsyncOpKernel(construction),
        compilations_(std::move(compilations)),
        constants_(std::move(constants)),
        plain_(std::move(make_plain)),
        launch_(std::move(launch)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    const std::string signature = SignatureOf(ctx);
    if (!plain_.can_make()) {
      compilations_->CountCompiled(signature);
    } else if (const auto verdict = compilations_->Count(signature);
               verdict != Compilations::Verdict::kCompile) {
      if (verdict == Compilations::Verdict::kOutgrown && compilations_->TellOnce()) {
        TellOutgrown(compilations_->cluster());
      }
      const absl::StatusOr<AsyncOpKernel*> plain = plain_.Get();
      OP_REQUIRES_OK_ASYNC(ctx, plain.status(), done);
      RunInside(*plain, ctx, std::move(done));
      return;
    }
    launch_->AsAsync()->ComputeAsync(ctx, std::move(done));
  }

 private:
  std::string SignatureOf(OpKernelContext* ctx) const {
    std::string bytes;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const tensorflow::Tensor& input = ctx->input(i);
      if (input.dtype() == tensorflow::DT_RESOURCE) {
        AppendVariable(ctx, input, &bytes);
        continue;
      }
      AppendShape(input.shape(), &bytes);
      if (std::binary_search(constants_.begin(), constants_.end(), i)) {
        bytes.append(input.tensor_data());
      }
    }
    return bytes;
  }

  const std::shared_ptr<Compilations> compilations_;
  const std::vector<int> constants_;  // inputs that XLA makes constants of its programs
  LazyKernel<> plain_;                // cannot be made if it might compute something else
  const KernelPtr launch_;
};

// Returns true for random numbers that only the seed may decide. XLA draws others for some dtypes.
bool DrawsBySeed(const NodeDef& node) {
  for (const char* kind : {"Random", "TruncatedNormal", "Multinomial", "Shuffle", "Sample"}) {
    if (absl::StartsWith(node.op(), "Stateless") && absl::StrContains(node.op(), kind)) return true;
  }
  return false;
}

// Returns true if a node that calls Python cannot, or must not, do so outside of a program.
bool MustBeInProgram(const NodeDef& node) {
  const auto route = node.attr().find(attributes::ROUTE);
  return !IsScriptOp(node.op()) ||
         (route != node.attr().end() && route->second.s() == "custom_call");
}

// Returns the cluster that a node calls. Several clusters may have the same function.
const std::string& ClusterName(const NodeDef& call, const std::string& function) {
  const auto name = call.attr().find(attributes::CLUSTER_NAME);
  return name != call.attr().end() ? name->second.s() : function;
}

// Returns true if TensorFlow's kernels may do the work of a program.
bool MayRunPlain(const std::string& function, const FunctionLibraryDefinition& library,
                 const tensorflow::DeviceType& device) {
  return VisitReachable({function}, library, [&](const tensorflow::FunctionDef& reached) {
    for (const NodeDef& node : reached.node_def()) {
      if (DrawsBySeed(node)) return false;
      if (CallsPython(node) && MustBeInProgram(node)) return false;
      if (!library.Contains(node.op()) && !HasKernel(node, device)) return false;
    }
    return true;
  });
}

}  // namespace

absl::Status BoundCompilations(const KernelRequest& request, MakeKernel make_plain,
                               KernelPtr* launch) {
  const NodeDef& call = request.props->node_def;
  const std::string& function = CalledFunction(call);
  tensorflow::NameAttrList called;
  called.set_name(function);
  const tensorflow::FunctionBody* body = nullptr;
  std::vector<int> constants, resources;
  TF_RETURN_IF_ERROR(tensorflow::GetBodyAndConstantsAndResources(request.runtime, called, &body,
                                                                 &constants, &resources));
  tensorflow::Device& device = *request.runtime->device();
  const tensorflow::DeviceType type(device.device_type());
  if (!MayRunPlain(function, request.library(), type)) make_plain = nullptr;
  auto compilations = AllCompilations::Global().Of(device.resource_manager(),
                                                   ClusterName(call, function), function);
  return WrapKernel<BoundedLaunch>(request, launch, std::move(compilations), std::move(constants),
                                   std::move(make_plain));
}

void DefineCompilations(nb::module_& m) {
  m.def(
      "set_max_compilations", [](size_t value) { max_compilations = value; }, nb::arg("value"),
      "Set the number of signatures of one cluster that are compiled.");
  m.def(
      "compilations", [](bool reset) { return AllCompilations::Global().Counts(reset); },
      nb::arg("reset"),
      "Return for each compiled function of a partitioned one: its name, the number of programs "
      "that XLA has made of it, and the number of its runs by TensorFlow's kernels.");
}

}  // namespace hostcall
