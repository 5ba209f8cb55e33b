#include "call_kernel.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hostcall_attributes.h"
#include "reachable.h"
#include "tensorflow/compiler/jit/defs.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/rendezvous_mgr.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace hostcall {

using tensorflow::AsyncOpKernel;
using tensorflow::DeviceType;
using tensorflow::MemoryTypeVector;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::XlaOpRegistry;

namespace {

// TensorFlow's executor for functions that are marked as sequential.
constexpr char kOneThread[] = "SINGLE_THREADED_EXECUTOR";

// Rendezvous of a function's parts on several devices of this process.
class OwnRendezvous : public tensorflow::PrivateIntraProcessRendezvous {
  using PrivateIntraProcessRendezvous::PrivateIntraProcessRendezvous;
};

// Call that supplies a rendezvous if its caller has none, as in functions of an iterator that
// sessions share. TensorFlow's call would ask the function runtime for one, which a shared
// iterator's runtime cannot make.
class MeetingCall : public AsyncOpKernel {
 public:
  MeetingCall(tensorflow::OpKernelConstruction* construction, KernelPtr call)
      : AsyncOpKernel(construction), call_(std::move(call)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    tensorflow::RendezvousInterface* const callers = ctx->rendezvous();
    std::unique_ptr<OwnRendezvous> own = MakeRendezvous(*ctx);
    ctx->params()->rendezvous = own.get();
    ComputeHolding(
        std::move(own), call_->AsAsync(), ctx,
        [ctx, callers](const auto&) { ctx->params()->rendezvous = callers; }, std::move(done));
  }

 private:
  // Returns null if TensorFlow should make the rendezvous; its own can also reach other processes.
  static std::unique_ptr<OwnRendezvous> MakeRendezvous(const OpKernelContext& ctx) {
    tensorflow::RendezvousInterface* const callers = ctx.rendezvous();
    const bool runtime_makes_them =
        callers != nullptr && dynamic_cast<OwnRendezvous*>(callers) == nullptr;
    if (runtime_makes_them || ctx.function_library() == nullptr) return nullptr;
    return std::make_unique<OwnRendezvous>(ctx.function_library()->device_mgr());
  }

  const KernelPtr call_;
};

using Then = std::function<void(const absl::Status&, std::vector<Tensor>)>;

// Copies tensors from the device to the host, or the other way, and gives `then` the copies.
void CopyAll(OpKernelContext* ctx, std::vector<Tensor> tensors, bool to_host, Then then) {
  struct Copies {
    void Finish(const absl::Status& copied) {
      {
        std::lock_guard<std::mutex> lock(mutex);
        status.Update(copied);
      }
      if (--left > 0) return;
      // The device may keep its callback, and so this, after the op is done: `ComputeHolding`.
      from.clear();
      std::vector<Tensor> copies = std::exchange(to, {});
      if (!status.ok()) copies.clear();
      std::exchange(then, nullptr)(status, std::move(copies));
    }

    std::vector<Tensor> from, to;
    Then then;
    std::atomic<size_t> left;
    std::mutex mutex;
    absl::Status status;
  };
  const auto copies = std::make_shared<Copies>();
  copies->from = std::move(tensors);
  copies->to.resize(copies->from.size());
  copies->then = std::move(then);
  copies->left = copies->from.size() + 1;
  tensorflow::AllocatorAttributes attributes;
  attributes.set_on_host(to_host);
  attributes.set_gpu_compatible(to_host);
  for (size_t i = 0; i < copies->from.size(); ++i) {
    const Tensor& from = copies->from[i];
    const absl::Status allocated =
        ctx->allocate_temp(from.dtype(), from.shape(), &copies->to[i], attributes);
    if (!allocated.ok()) {
      copies->left = 1;
      return copies->Finish(allocated);
    }
  }
  auto* const device = static_cast<tensorflow::Device*>(ctx->device());
  const auto finish = [copies](const absl::Status& copied) { copies->Finish(copied); };
  for (size_t i = 0; i < copies->from.size(); ++i) {
    if (to_host) {
      ctx->op_device_context()->CopyDeviceTensorToCPU(&copies->from[i], "", device, &copies->to[i],
                                                      finish);
    } else {
      ctx->op_device_context()->CopyCPUTensorToDevice(&copies->from[i], device, &copies->to[i],
                                                      finish);
    }
  }
  copies->Finish(absl::OkStatus());
}

// Call that takes and returns 32-bit integers on the device. On a GPU, TensorFlow's functions have
// them in host memory, since most of them are shapes and indices. Programs have them on the device,
// like all other values.
class IntegersOnDevice : public AsyncOpKernel {
 public:
  IntegersOnDevice(tensorflow::OpKernelConstruction* construction, std::vector<int> inputs,
                   std::vector<int> outputs, KernelPtr call)
      : AsyncOpKernel(construction),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        call_(std::move(call)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    std::vector<Tensor> inputs;
    for (const int i : inputs_) inputs.push_back(ctx->input(i));
    CopyAll(ctx, std::move(inputs), /*to_host=*/true,
            [this, ctx, done](const absl::Status& copied, std::vector<Tensor> copies) {
              OP_REQUIRES_OK_ASYNC(ctx, copied, done);
              // Leave the thread that reports copies: creating a kernel may need a copy, which
              // would wait for this thread.
              (*ctx->runner())([this, ctx, copies = std::move(copies), done]() mutable {
                Call(ctx, std::move(copies), done);
              });
            });
  }

 private:
  // One run of the call.
  struct Run {
    std::vector<Tensor> copies;  // of the moved inputs
    std::vector<tensorflow::TensorValue> inputs;
    std::unique_ptr<InnerContext> inner;
  };

  void Call(OpKernelContext* ctx, std::vector<Tensor> copies, const DoneCallback& done) {
    auto run = std::make_unique<Run>();
    run->copies = std::move(copies);
    OpKernelContext::Params params = ParamsOf(*ctx);
    run->inputs.assign(params.inputs.begin(), params.inputs.end());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      run->inputs[inputs_[i]] = tensorflow::TensorValue(&run->copies[i]);
    }
    params.inputs = run->inputs;
    run->inner = std::make_unique<InnerContext>(params, ctx->num_outputs(), call_.get());
    OpKernelContext* const inner = run->inner->get();
    ComputeHolding(
        std::move(run), call_->AsAsync(), inner,
        [ctx](const auto& ended) { ended->inner->HandOver(ctx); },
        [this, ctx, done] { Return(ctx, done); });
  }

  void Return(OpKernelContext* ctx, const DoneCallback& done) {
    OP_REQUIRES_ASYNC(ctx, ctx->status().ok(), ctx->status(), done);
    std::vector<int> indices;
    std::vector<Tensor> outputs;
    for (const int i : outputs_) {
      if (ctx->mutable_output(i) == nullptr) continue;
      indices.push_back(i);
      outputs.push_back(*ctx->mutable_output(i));
    }
    CopyAll(ctx, std::move(outputs), /*to_host=*/false,
            [ctx, indices, done](const absl::Status& copied, std::vector<Tensor> copies) {
              OP_REQUIRES_OK_ASYNC(ctx, copied, done);
              for (size_t i = 0; i < indices.size(); ++i) {
                *ctx->mutable_output(indices[i]) = std::move(copies[i]);
              }
              copies.clear();
              done();
            });
  }

  const std::vector<int> inputs_, outputs_;  // indices of the moved values
  const KernelPtr call_;
};

// Returns the indices of values that the call has in host memory and a program on the device, and
// moves them in `memory`.
std::vector<int> MoveToDevice(const tensorflow::DataTypeVector& types, MemoryTypeVector* memory) {
  std::vector<int> moved;
  for (size_t i = 0; i < std::min(memory->size(), types.size()); ++i) {
    if (types[i] != tensorflow::DT_INT32 || (*memory)[i] != tensorflow::HOST_MEMORY) continue;
    (*memory)[i] = tensorflow::DEVICE_MEMORY;
    moved.push_back(static_cast<int>(i));
  }
  return moved;
}

absl::Status TakeIntegersOnDevice(const KernelRequest& request, KernelPtr* call) {
  // A CPU has only one memory, so no value has to move.
  if (request.runtime->device()->device_type() == tensorflow::DEVICE_CPU) return absl::OkStatus();
  MemoryTypeVector takes = (*call)->input_memory_types(), returns = (*call)->output_memory_types();
  std::vector<int> taken = MoveToDevice(request.props->input_types, &takes);
  std::vector<int> returned = MoveToDevice(request.props->output_types, &returns);
  if (taken.empty() && returned.empty()) return absl::OkStatus();
  return WrapKernelBetween<IntegersOnDevice>(takes, returns, request, call, std::move(taken),
                                             std::move(returned));
}

// Returns true if a function on several devices has its 32-bit integers on a device of `type`, as
// programs do. Otherwise they are in host memory. The list of types is TensorFlow's.
bool HasIntegersOnDevice(const std::string& type) {
  return type == "TPU" || type == tensorflow::DEVICE_XLA_CPU || type == tensorflow::DEVICE_XLA_GPU;
}

// Returns the same node, marked to take and return values where a program does.
std::shared_ptr<const NodeProperties> InPlaceOfProgram(const NodeProperties& props) {
  auto marked = std::make_shared<NodeProperties>(props);
  (*marked->node_def.mutable_attr())[tensorflow::kXlaMustCompileAttr].set_b(true);
  return marked;
}

// Copies the run options. Calls from a graph have them; calls from eager code use the defaults.
absl::Status CopyOptions(const NodeDef& from, bool has_effects, bool sequential, NodeDef* to) {
  std::string options;
  tensorflow::TryGetNodeAttr(from, "config_proto", &options);
  tensorflow::ConfigProto config;
  if (!config.ParseFromString(options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("hostcall: the attribute config_proto of ", from.name(), " is malformed."));
  }
  if (has_effects) {
    // Grappler inlines calls regardless of the order of their effects, and folds work that each
    // call has to do. The code worth optimizing is in the clusters, which XLA optimizes.
    config.mutable_graph_options()->mutable_rewrite_options()->set_disable_meta_optimizer(true);
  }
  tensorflow::AddNodeAttr("config_proto", config.SerializeAsString(), to);
  std::string executor;
  tensorflow::TryGetNodeAttr(from, "executor_type", &executor);
  tensorflow::AddNodeAttr("executor_type", sequential ? kOneThread : executor, to);
  return absl::OkStatus();
}

// Returns a function for a new kernel to call. If it keeps streams of random numbers, its kernels
// are the new kernel's own, as in graph mode: TensorFlow shares the kernels of equal calls.
tensorflow::NameAttrList WithOwnStreams(const std::string& function,
                                        const tensorflow::FunctionLibraryDefinition& library) {
  static std::atomic<int64_t> instances{0};
  tensorflow::NameAttrList own;
  own.set_name(function);
  if (KeepsStreams(function, library)) {
    (*own.mutable_attr())[attributes::INSTANCE].set_i(++instances);
  }
  return own;
}

}  // namespace

const std::string& CalledFunction(const NodeDef& node) {
  const auto f = node.attr().find("f");
  return f != node.attr().end() && f->second.has_func() ? f->second.func().name() : node.op();
}

NodeDef WithCalledFunction(NodeDef node, const std::string& function) {
  auto f = node.mutable_attr()->find("f");
  if (f != node.mutable_attr()->end() && f->second.has_func()) {
    f->second.mutable_func()->set_name(function);
  } else {
    node.set_op(function);
  }
  return node;
}

absl::StatusOr<std::shared_ptr<const NodeProperties>> CallInPlaceOf(
    const NodeDef& replaced, const tensorflow::NameAttrList& function,
    const tensorflow::DataTypeVector& inputs, const tensorflow::DataTypeVector& outputs,
    NodeDef call) {
  const tensorflow::OpDef* op = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUpOpDef("StatefulPartitionedCall", &op));
  call.set_name(replaced.name());
  call.set_op(op->name());
  call.set_device(replaced.device());
  tensorflow::AddNodeAttr("f", function, &call);
  tensorflow::AddNodeAttr("Tin", inputs, &call);
  tensorflow::AddNodeAttr("Tout", outputs, &call);
  tensorflow::AddDefaultsToNodeDef(*op, &call);
  return std::make_shared<const NodeProperties>(op, std::move(call), inputs, outputs);
}

absl::StatusOr<std::shared_ptr<const NodeProperties>> CallOf(const std::string& function,
                                                             const KernelRequest& request,
                                                             bool has_effects, bool sequential) {
  const NodeProperties& props = *request.props;
  NodeDef node;
  *node.mutable_input() = props.node_def.input();
  TF_RETURN_IF_ERROR(CopyOptions(props.node_def, has_effects, sequential, &node));
  return CallInPlaceOf(props.node_def, WithOwnStreams(function, request.library()),
                       props.input_types, props.output_types, std::move(node));
}

absl::Status CreateCallKernel(const KernelRequest& call, KernelPtr* kernel) {
  absl::Status status = CreateInnerCallKernel(call, kernel);
  if (!status.ok() || HasIntegersOnDevice(call.runtime->device()->device_type())) return status;
  return TakeIntegersOnDevice(call, kernel);
}

absl::Status CreatePlainCallKernel(const KernelRequest& request, const std::string& function,
                                   KernelPtr* kernel) {
  TF_ASSIGN_OR_RETURN(auto call,
                      CallOf(function, request, /*has_effects=*/false, /*sequential=*/false));
  return CreateCallKernel({request.runtime, std::move(call)}, kernel);
}

absl::Status CreateKernelFor(const std::string& device_type, const KernelRequest& request,
                             KernelPtr* kernel) {
  tensorflow::Device* device = request.runtime->device();
  tensorflow::OpKernel* created = nullptr;
  absl::Status status = tensorflow::CreateOpKernel(
      DeviceType(device_type), device, device->GetAllocator({}), request.runtime,
      device->resource_manager(), request.props, request.runtime->graph_def_version(), &created);
  kernel->reset(created);
  return status;
}

absl::Status CreateInnerCallKernel(const KernelRequest& request, KernelPtr* kernel) {
  const std::string& device_type = request.runtime->device()->device_type();
  const bool is_cpu = device_type == tensorflow::DEVICE_CPU;
  // Devices for which XLA compiles each op have kernels for calls too, but those compile the whole
  // callee.
  const char* type = is_cpu ? tensorflow::DEVICE_CPU : tensorflow::DEVICE_DEFAULT;
  KernelRequest call = request;
  if (HasIntegersOnDevice(device_type)) call.props = InPlaceOfProgram(*request.props);
  TF_RETURN_IF_ERROR(CreateKernelFor(type, call, kernel));
  return WrapKernel<MeetingCall>(call, kernel);
}

bool HasKernel(NodeDef node, const DeviceType& device) {
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op).ok()) return false;
  tensorflow::AddDefaultsToNodeDef(*op, &node);  // SavedModels omit defaults
  std::string kernel;
  // The CPU's kernels of XLA's own ops compile them for a device that wheels leave out.
  return tensorflow::FindKernelDef(device, node, nullptr, &kernel).ok() &&
         kernel != "XlaCompileOnDemandOp";
}

bool HasXlaKernel(const NodeDef& node, const std::string& device_type) {
  XlaOpRegistry::RegisterCompilationKernels();
  const XlaOpRegistry::DeviceRegistration* registration = nullptr;
  if (!XlaOpRegistry::GetCompilationDevice(device_type, &registration)) return false;
  const DeviceType compiled(registration->compilation_device_name);
  return tensorflow::FindKernelDef(compiled, node, nullptr, nullptr).ok() ||
         HasKernel(node, compiled);
}

std::vector<int> ConstantOperands(const NodeDef& node) {
  XlaOpRegistry::RegisterCompilationKernels();
  const tensorflow::OpDef* op = nullptr;
  std::vector<int> operands;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op).ok()) return operands;
  NodeDef complete = node;
  tensorflow::AddDefaultsToNodeDef(*op, &complete);
  const absl::Status found = XlaOpRegistry::CompileTimeConstantInputs(complete, *op, &operands);
  return found.ok() ? operands : std::vector<int>();
}

}  // namespace hostcall
