// Variables of a compiled program, while it calls back into Python.
//
// TensorFlow holds the lock of each variable that a compiled program takes for as long as the
// program runs, so that a callback that reads or assigns one would wait for ever. Programs with
// callbacks therefore run on copies, which share the memory of the variables' values. A program
// takes the values of its variables when it starts, assigns them when it has ended, and holds no
// lock in between.
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "functions/kept_values.h"
#include "launch.h"
#include "tensorflow/compiler/jit/variable_info.h"
#include "tensorflow/compiler/jit/variable_info_util.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor_util.h"
#include "tensorflow/core/util/managed_stack_trace.h"

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorValue;
using tensorflow::Var;
using tensorflow::VariableInfo;

absl::Status DeepCopy(OpKernelContext* ctx, const Tensor& from, Tensor* to) {
  TF_RETURN_IF_ERROR(ctx->allocate_temp(from.dtype(), from.shape(), to));
  if (ctx->op_device_context() == nullptr) {
    tensorflow::tensor::DeepCopy(from, to);
    return absl::OkStatus();
  }
  absl::Status status;
  absl::Notification copied;
  ctx->op_device_context()->CopyTensorInSameDevice(
      &from, static_cast<tensorflow::Device*>(ctx->device()), to, [&](const absl::Status& done) {
        status = done;
        copied.Notify();
      });
  copied.WaitForNotification();
  return status;
}

// A user's variable, and the copy that a run of the program has in its place.
class CopiedVariable {
 public:
  CopiedVariable() = default;
  CopiedVariable(const CopiedVariable&) = delete;
  CopiedVariable& operator=(const CopiedVariable&) = delete;

  ~CopiedVariable() {
    if (resources_ == nullptr) return;
    const ResourceHandle& handle = handle_.scalar<ResourceHandle>()();
    resources_->Delete<Var>(handle.container(), handle.name()).IgnoreError();
  }

  // Copies the variable, whose lock the caller holds.
  absl::Status Take(OpKernelContext* ctx, const VariableInfo& info) {
    info.var()->Ref();
    original_.reset(info.var());
    copy_ = new Var(original_->tensor()->dtype());
    ResourceHandle& handle = handle_.scalar<ResourceHandle>()();
    handle = ResourceHandle::MakeRefCountingHandle(copy_, ctx->device()->attributes().name(), {},
                                                   info.definition_stack_trace());
    handle.set_name(absl::StrCat(info.name(), ":", handle.name()));
    seen_ = Address(*original_->tensor());
    was_initialized_ = original_->is_initialized;
    if (was_initialized_) {
      // In this mode, sparse updates write into the variable's memory even if it is shared.
      if (original_->copy_on_read_mode.load()) {
        TF_RETURN_IF_ERROR(DeepCopy(ctx, *original_->tensor(), &taken_));
      } else {
        taken_ = *original_->tensor();
      }
      *copy_->tensor() = taken_;
      copy_->is_initialized = true;
    }
    // XLA looks variables up by their names, not by the pointers in their handles. The manager owns
    // a reference: it would hear of the end of what it does not own, at a time when it may be gone.
    copy_->Ref();
    TF_RETURN_IF_ERROR(
        ctx->resource_manager()->Create<Var>(handle.container(), handle.name(), copy_));
    resources_ = ctx->resource_manager();
    return absl::OkStatus();
  }

  Var* original() const { return original_.get(); }
  Tensor* handle() { return &handle_; }

  // Returns true if the program has assigned it. An assigned value has its own memory, since
  // `taken_` keeps XLA from writing into the old memory.
  bool IsAssigned() const {
    const Tensor& now = *copy_->tensor();
    if (!was_initialized_) return copy_->is_initialized;
    return now.dtype() != taken_.dtype() || now.shape() != taken_.shape() ||
           Address(now) != Address(taken_);
  }

  // Returns true if other code has assigned the user's variable since. The caller holds its lock.
  bool IsOutdated() const { return seen_ != Address(*original_->tensor()); }

  // Assigns the copy's value. The caller holds the lock of the user's variable.
  void PutBack() {
    *original_->tensor() = std::move(*copy_->tensor());
    original_->is_initialized = true;
  }

 private:
  static const void* Address(const Tensor& tensor) { return tensor.tensor_data().data(); }

  tensorflow::core::RefCountPtr<Var> original_;
  Tensor handle_{tensorflow::DT_RESOURCE, tensorflow::TensorShape({})};
  Var* copy_ = nullptr;                           // owned by the handle
  tensorflow::ResourceMgr* resources_ = nullptr;  // that the copy is registered in
  Tensor taken_;  // the value at the start, held so that its memory is not reused
  const void* seen_ = nullptr;
  bool was_initialized_ = false;
};

// One run of a program.
class Run {
 public:
  // Copies the variables among the inputs, and gives the kernel the copies.
  absl::Status Start(OpKernelContext* ctx, const std::vector<int>& resources) {
    std::vector<const Tensor*> inputs;
    for (int i = 0; i < ctx->num_inputs(); ++i) inputs.push_back(&ctx->input(i));
    // Their destructors release the locks.
    std::vector<VariableInfo> infos;
    const std::set<int> none_is_updated;
    TF_RETURN_IF_ERROR(tensorflow::GetVariableInfosFromInputs(
        ctx->resource_manager(), ctx->device(), inputs, resources, &none_is_updated, &infos));
    TF_RETURN_IF_ERROR(tensorflow::LockVariables(absl::MakeSpan(infos)));

    users_inputs_ = ctx->params()->inputs;
    inputs_.assign(users_inputs_.begin(), users_inputs_.end());
    variables_ = std::vector<CopiedVariable>(infos.size());
    for (size_t i = 0; i < infos.size(); ++i) {
      TF_RETURN_IF_ERROR(variables_[i].Take(ctx, infos[i]));
      inputs_[resources[i]] = TensorValue(variables_[i].handle());
    }
    ctx->params()->inputs = inputs_;
    return absl::OkStatus();
  }

  // Assigns the new values of the copies to the user's variables, all or none.
  void Finish(OpKernelContext* ctx, const std::vector<int>& resources) {
    ctx->params()->inputs = users_inputs_;
    if (!ctx->status().ok()) return;
    ReturnUsersHandles(ctx, resources);

    std::vector<CopiedVariable*> assigned;
    std::vector<VariableInfo> locks;
    locks.reserve(variables_.size());
    for (size_t i = 0; i < variables_.size(); ++i) {
      if (!variables_[i].IsAssigned()) continue;
      assigned.push_back(&variables_[i]);
      variables_[i].original()->Ref();  // the lock takes a reference
      locks.emplace_back(resources[i], "", variables_[i].original());
    }
    absl::Status status = tensorflow::LockVariables(absl::MakeSpan(locks));
    for (size_t i = 0; i < assigned.size() && status.ok(); ++i) {
      if (assigned[i]->IsOutdated()) status = AssignedMeanwhile(ctx, locks[i].index());
    }
    if (!status.ok()) {
      ctx->SetStatus(status);
      return;
    }
    for (CopiedVariable* variable : assigned) variable->PutBack();
  }

 private:
  // Puts the user's handles in the place of copies' handles that the program returns.
  void ReturnUsersHandles(OpKernelContext* ctx, const std::vector<int>& resources) {
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      if (ctx->expected_output_dtype(i) != tensorflow::DT_RESOURCE) continue;
      for (size_t j = 0; j < resources.size(); ++j) {
        if (ctx->mutable_output(i)->SharesBufferWith(*variables_[j].handle())) {
          *ctx->mutable_output(i) = ctx->input(resources[j]);
          break;
        }
      }
    }
  }

  static absl::Status AssignedMeanwhile(OpKernelContext* ctx, int input) {
    const auto& handle = ctx->input(input).flat<ResourceHandle>()(0);
    return absl::FailedPreconditionError(absl::StrCat(
        "hostcall: the variable '", handle.name(), "'",
        tensorflow::DefinitionLocationMsg(handle.definition_stack_trace()),
        " was assigned while a compiled function ran that assigns it too: by a Python function "
        "that it calls, or by another thread. A compiled function takes the values of its "
        "variables when it starts and assigns them when it has ended, so that one of the two "
        "values would be lost. Return the value from the Python function and assign it in the "
        "compiled one, or let the threads call it in turn."));
  }

  std::vector<CopiedVariable> variables_;
  std::vector<TensorValue> inputs_;
  absl::Span<const TensorValue> users_inputs_;
};

class LaunchOnCopies : public AsyncOpKernel {
 public:
  LaunchOnCopies(OpKernelConstruction* construction, std::vector<int> resources, KernelPtr launch)
      : AsyncOpKernel(construction), resources_(std::move(resources)), launch_(std::move(launch)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    auto run = std::make_unique<Run>();
    const absl::Status started = run->Start(ctx, resources_);
    if (!started.ok()) run.reset();
    OP_REQUIRES_OK_ASYNC(ctx, started, done);
    ComputeHolding(
        std::move(run), launch_->AsAsync(), ctx,
        [this, ctx](const auto& ended) { ended->Finish(ctx, resources_); }, std::move(done));
  }

 private:
  const std::vector<int> resources_;  // inputs that are variables
  const KernelPtr launch_;
};

}  // namespace

absl::Status RunOnCopies(const KernelRequest& request, KernelPtr* launch) {
  return WrapForVariables<LaunchOnCopies>(request, launch);
}

}  // namespace hostcall
