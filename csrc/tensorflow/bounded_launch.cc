#include "bounded_launch.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "compilations.h"
#include "functions/reachable.h"
#include "functions/wrapped_kernel.h"
#include "hostcall_attributes.h"
#include "partitioned_function_kernel.h"
#include "python_hooks.h"
#include "tensorflow/compiler/jit/compilability_check_util.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;

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
                MakeKernel make_plain, std::unique_ptr<OpKernel> launch)
      : AsyncOpKernel(construction),
        compilations_(std::move(compilations)),
        constants_(std::move(constants)),
        make_plain_(std::move(make_plain)),
        launch_(std::move(launch)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    const std::string signature = SignatureOf(ctx);
    if (make_plain_ == nullptr) {
      compilations_->CountCompiled(signature);
    } else if (const auto verdict = compilations_->Count(signature);
               verdict != Compilations::Verdict::kCompile) {
      if (verdict == Compilations::Verdict::kOutgrown && compilations_->TellOnce()) {
        TellOutgrown(compilations_->cluster());
      }
      RunPlain(ctx, std::move(done));
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

  void RunPlain(OpKernelContext* ctx, DoneCallback done) {
    const absl::StatusOr<AsyncOpKernel*> plain = Plain();
    OP_REQUIRES_OK_ASYNC(ctx, plain.status(), done);
    // Give the kernel its own context: kernels look up inputs by the names in their own op.
    auto inner = std::make_shared<InnerContext>(*ctx, *plain);
    (*plain)->ComputeAsync(inner->get(), [ctx, inner, done = std::move(done)] {
      inner->HandOver(ctx);
      done();
    });
  }

  absl::StatusOr<AsyncOpKernel*> Plain() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (plain_ == nullptr) {
      if (absl::Status made = make_plain_(&plain_); !made.ok()) return made;
    }
    return plain_->AsAsync();
  }

  const std::shared_ptr<Compilations> compilations_;
  const std::vector<int> constants_;  // inputs that XLA makes constants of its programs
  const MakeKernel make_plain_;
  const std::unique_ptr<OpKernel> launch_;
  std::mutex mutex_;
  std::unique_ptr<OpKernel> plain_;  // set once
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

// Returns true if TensorFlow has a kernel for the node. The CPU has kernels of XLA's own ops, too,
// which compile them, for a device that wheels leave out.
bool HasKernel(NodeDef node, const tensorflow::DeviceType& device) {
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op).ok()) return false;
  tensorflow::AddDefaultsToNodeDef(*op, &node);
  std::string kernel;
  return tensorflow::FindKernelDef(device, node, nullptr, &kernel).ok() &&
         kernel != "XlaCompileOnDemandOp";
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

absl::Status BoundCompilations(tensorflow::FunctionLibraryRuntime* runtime,
                               const std::shared_ptr<const tensorflow::NodeProperties>& props,
                               const std::string& function, MakeKernel make_plain,
                               std::unique_ptr<OpKernel>* launch) {
  tensorflow::NameAttrList called;
  called.set_name(function);
  const tensorflow::FunctionBody* body = nullptr;
  std::vector<int> constants, resources;
  const absl::Status found =
      tensorflow::GetBodyAndConstantsAndResources(runtime, called, &body, &constants, &resources);
  if (!found.ok()) return found;
  const tensorflow::DeviceType device(runtime->device()->device_type());
  if (!MayRunPlain(function, *runtime->GetFunctionLibraryDefinition(), device)) {
    make_plain = nullptr;
  }
  auto compilations = Compilations::Of(runtime->device()->resource_manager(),
                                       ClusterName(props->node_def, function), function);
  return WrapKernel<BoundedLaunch>(runtime, props, launch, std::move(compilations),
                                   std::move(constants), std::move(make_plain));
}

}  // namespace hostcall
