#include "device_integers.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor.h"
#include "wrapped_kernel.h"

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::MemoryTypeVector;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Returns the indices of values that the call has in host memory and a program on the device.
std::vector<int> Moved(const MemoryTypeVector& memory, const tensorflow::DataTypeVector& types) {
  std::vector<int> moved;
  for (int i = 0; i < static_cast<int>(std::min(memory.size(), types.size())); ++i) {
    if (types[i] == tensorflow::DT_INT32 && memory[i] == tensorflow::HOST_MEMORY) {
      moved.push_back(i);
    }
  }
  return moved;
}

// Copies in progress, and the continuation after the last of them.
class Copies {
 public:
  Copies(size_t count, std::function<void(const absl::Status&)> done)
      : left_(count + 1), done_(std::move(done)) {}

  void Finish(const absl::Status& status) {
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      status_.Update(status);
    }
    if (--left_ == 0) done_(status_);
  }

 private:
  std::atomic<size_t> left_;
  const std::function<void(const absl::Status&)> done_;
  std::mutex mutex_;
  absl::Status status_;
};

// One run of the call.
struct Run {
  std::vector<Tensor> copies;  // of the moved values
  std::vector<tensorflow::TensorValue> inputs;
  std::unique_ptr<InnerContext> inner;
};

class IntegersOnDevice : public AsyncOpKernel {
 public:
  IntegersOnDevice(tensorflow::OpKernelConstruction* construction, std::vector<int> inputs,
                   std::vector<int> outputs, std::unique_ptr<OpKernel> call)
      : AsyncOpKernel(construction),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        call_(std::move(call)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    auto run = std::make_shared<Run>();
    run->copies.resize(inputs_.size());
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    on_host.set_gpu_compatible(true);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& input = ctx->input(inputs_[i]);
      OP_REQUIRES_OK_ASYNC(
          ctx, ctx->allocate_temp(input.dtype(), input.shape(), &run->copies[i], on_host), done);
    }
    const auto copies = std::make_shared<Copies>(
        inputs_.size(), [this, ctx, run, done](const absl::Status& copied) {
          OP_REQUIRES_OK_ASYNC(ctx, copied, done);
          // Leave the thread that reports copies: creating a kernel may need a copy, which would
          // wait for this thread.
          (*ctx->runner())([this, ctx, run, done] { Call(ctx, run, done); });
        });
    for (size_t i = 0; i < inputs_.size(); ++i) {
      ctx->op_device_context()->CopyDeviceTensorToCPU(
          &ctx->input(inputs_[i]), "", static_cast<tensorflow::Device*>(ctx->device()),
          &run->copies[i], [copies](const absl::Status& status) { copies->Finish(status); });
    }
    copies->Finish(absl::OkStatus());
  }

 private:
  void Call(OpKernelContext* ctx, const std::shared_ptr<Run>& run, const DoneCallback& done) {
    OpKernelContext::Params params = ParamsOf(*ctx);
    run->inputs.assign(params.inputs.begin(), params.inputs.end());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      run->inputs[inputs_[i]] = tensorflow::TensorValue(&run->copies[i]);
    }
    params.inputs = run->inputs;
    run->inner = std::make_unique<InnerContext>(params, ctx->num_outputs(), call_.get());
    call_->AsAsync()->ComputeAsync(run->inner->get(),
                                   [this, ctx, run, done] { Return(ctx, run, done); });
  }

  void Return(OpKernelContext* ctx, const std::shared_ptr<Run>& run, const DoneCallback& done) {
    run->inner->HandOver(ctx);
    OP_REQUIRES_ASYNC(ctx, ctx->status().ok(), ctx->status(), done);
    std::vector<std::pair<int, Tensor>> returned;
    for (const int i : outputs_) {
      if (ctx->mutable_output(i) != nullptr) returned.emplace_back(i, *ctx->mutable_output(i));
    }
    run->copies.assign(returned.size(), Tensor());
    for (size_t i = 0; i < returned.size(); ++i) {
      const Tensor& output = returned[i].second;
      OP_REQUIRES_OK_ASYNC(ctx, ctx->allocate_temp(output.dtype(), output.shape(), &run->copies[i]),
                           done);
    }
    const auto copies = std::make_shared<Copies>(
        returned.size(), [ctx, run, returned, done](const absl::Status& copied) {
          OP_REQUIRES_OK_ASYNC(ctx, copied, done);
          for (size_t i = 0; i < returned.size(); ++i) {
            *ctx->mutable_output(returned[i].first) = run->copies[i];
          }
          done();
        });
    for (size_t i = 0; i < returned.size(); ++i) {
      ctx->op_device_context()->CopyCPUTensorToDevice(
          &returned[i].second, static_cast<tensorflow::Device*>(ctx->device()), &run->copies[i],
          [copies, returned](const absl::Status& status) { copies->Finish(status); });
    }
    copies->Finish(absl::OkStatus());
  }

  const std::vector<int> inputs_, outputs_;  // indices of the copied values
  const std::unique_ptr<OpKernel> call_;
};

}  // namespace

absl::Status TakeIntegersOnDevice(tensorflow::FunctionLibraryRuntime* runtime,
                                  const std::shared_ptr<const tensorflow::NodeProperties>& props,
                                  std::unique_ptr<OpKernel>* call) {
  // A CPU has only one memory, so no value has to move.
  if (runtime->device()->device_type() == tensorflow::DEVICE_CPU) return absl::OkStatus();
  const MemoryTypeVector& inputs = (*call)->input_memory_types();
  const MemoryTypeVector& outputs = (*call)->output_memory_types();
  std::vector<int> taken = Moved(inputs, props->input_types);
  std::vector<int> returned = Moved(outputs, props->output_types);
  if (taken.empty() && returned.empty()) return absl::OkStatus();
  MemoryTypeVector takes = inputs, returns = outputs;
  for (const int i : taken) takes[i] = tensorflow::DEVICE_MEMORY;
  for (const int i : returned) returns[i] = tensorflow::DEVICE_MEMORY;
  return WrapKernelBetween<IntegersOnDevice>(takes, returns, runtime, props, call, std::move(taken),
                                             std::move(returned));
}

}  // namespace hostcall
