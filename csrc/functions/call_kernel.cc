#include "call_kernel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device_integers.h"
#include "tensorflow/compiler/jit/defs.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/rendezvous_mgr.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/protobuf/config.pb.h"
#include "wrapped_kernel.h"

namespace hostcall {

using tensorflow::DeviceType;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;
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
class MeetingCall : public tensorflow::AsyncOpKernel {
 public:
  MeetingCall(tensorflow::OpKernelConstruction* construction,
              std::unique_ptr<tensorflow::OpKernel> call)
      : AsyncOpKernel(construction), call_(std::move(call)) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    tensorflow::RendezvousInterface* const callers = ctx->rendezvous();
    const std::shared_ptr<OwnRendezvous> own = MakeRendezvous(*ctx);
    ctx->params()->rendezvous = own.get();
    call_->AsAsync()->ComputeAsync(ctx, [ctx, callers, own, done = std::move(done)] {
      ctx->params()->rendezvous = callers;
      done();
    });
  }

 private:
  // Returns null if TensorFlow should make the rendezvous; its own can also reach other processes.
  static std::shared_ptr<OwnRendezvous> MakeRendezvous(const tensorflow::OpKernelContext& ctx) {
    tensorflow::RendezvousInterface* const callers = ctx.rendezvous();
    const bool runtime_makes_them =
        callers != nullptr && dynamic_cast<OwnRendezvous*>(callers) == nullptr;
    if (runtime_makes_them || ctx.function_library() == nullptr) return nullptr;
    return std::make_shared<OwnRendezvous>(ctx.function_library()->device_mgr());
  }

  const std::unique_ptr<tensorflow::OpKernel> call_;
};

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

}  // namespace

const std::string& CalledFunction(const NodeDef& node) {
  const auto f = node.attr().find("f");
  return f != node.attr().end() && f->second.has_func() ? f->second.func().name() : node.op();
}

absl::StatusOr<std::shared_ptr<const NodeProperties>> CallInPlaceOf(
    const NodeDef& replaced, const std::string& function, const tensorflow::DataTypeVector& inputs,
    const tensorflow::DataTypeVector& outputs, NodeDef call) {
  const tensorflow::OpDef* op = nullptr;
  absl::Status status =
      tensorflow::OpRegistry::Global()->LookUpOpDef("StatefulPartitionedCall", &op);
  if (!status.ok()) return status;
  call.set_name(replaced.name());
  call.set_op(op->name());
  call.set_device(replaced.device());
  tensorflow::NameAttrList callee;
  callee.set_name(function);
  tensorflow::AddNodeAttr("f", callee, &call);
  tensorflow::AddNodeAttr("Tin", inputs, &call);
  tensorflow::AddNodeAttr("Tout", outputs, &call);
  tensorflow::AddDefaultsToNodeDef(*op, &call);
  return std::make_shared<const NodeProperties>(op, std::move(call), inputs, outputs);
}

absl::StatusOr<std::shared_ptr<const NodeProperties>> CallOf(const std::string& function,
                                                             const NodeProperties& props,
                                                             bool has_effects, bool sequential) {
  NodeDef node;
  *node.mutable_input() = props.node_def.input();
  absl::Status status = CopyOptions(props.node_def, has_effects, sequential, &node);
  if (!status.ok()) return status;
  return CallInPlaceOf(props.node_def, function, props.input_types, props.output_types,
                       std::move(node));
}

absl::Status CreateCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                              const std::shared_ptr<const NodeProperties>& call,
                              std::unique_ptr<tensorflow::OpKernel>* kernel) {
  absl::Status status = CreateInnerCallKernel(runtime, call, kernel);
  if (!status.ok() || HasIntegersOnDevice(runtime->device()->device_type())) return status;
  return TakeIntegersOnDevice(runtime, call, kernel);
}

absl::Status CreatePlainCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                   const std::shared_ptr<const NodeProperties>& props,
                                   const std::string& function,
                                   std::unique_ptr<tensorflow::OpKernel>* kernel) {
  const auto call = CallOf(function, *props, /*has_effects=*/false, /*sequential=*/false);
  if (!call.ok()) return call.status();
  return CreateCallKernel(runtime, *call, kernel);
}

absl::Status CreateKernelFor(const std::string& device_type,
                             tensorflow::FunctionLibraryRuntime* runtime,
                             const std::shared_ptr<const NodeProperties>& props,
                             std::unique_ptr<tensorflow::OpKernel>* kernel) {
  tensorflow::Device* device = runtime->device();
  tensorflow::OpKernel* created = nullptr;
  absl::Status status = tensorflow::CreateOpKernel(
      DeviceType(device_type), device, device->GetAllocator({}), runtime,
      device->resource_manager(), props, runtime->graph_def_version(), &created);
  kernel->reset(created);
  return status;
}

absl::Status CreateInnerCallKernel(tensorflow::FunctionLibraryRuntime* runtime,
                                   const std::shared_ptr<const NodeProperties>& props,
                                   std::unique_ptr<tensorflow::OpKernel>* kernel) {
  tensorflow::Device* device = runtime->device();
  const std::string& device_type = device->device_type();
  const bool is_cpu = device_type == tensorflow::DEVICE_CPU;
  // Devices for which XLA compiles each op have kernels for calls too, but those compile the whole
  // callee.
  const char* type = is_cpu ? tensorflow::DEVICE_CPU : tensorflow::DEVICE_DEFAULT;
  const auto node = HasIntegersOnDevice(device_type) ? InPlaceOfProgram(*props) : props;
  if (absl::Status created = CreateKernelFor(type, runtime, node, kernel); !created.ok()) {
    return created;
  }
  return WrapKernel<MeetingCall>(runtime, node, kernel);
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
