#include "host_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace hostcall {

using tensorflow::DeviceType;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;

namespace {

// How to run the call. One from a graph says it; one from eager code leaves it to the defaults.
absl::Status CopyOptions(const NodeDef& from, NodeDef* to) {
  std::string options;
  tensorflow::TryGetNodeAttr(from, "config_proto", &options);
  tensorflow::ConfigProto config;
  if (!config.ParseFromString(options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("hostcall: the attribute config_proto of ", from.name(), " is malformed."));
  }
  // Grappler inlines calls without regard to the order of what they do, and folds what is to run in
  // each call. What is worth optimizing is in the clusters, which are XLA's.
  config.mutable_graph_options()->mutable_rewrite_options()->set_disable_meta_optimizer(true);
  tensorflow::AddNodeAttr("config_proto", config.SerializeAsString(), to);
  std::string executor;
  if (tensorflow::TryGetNodeAttr(from, "executor_type", &executor)) {
    tensorflow::AddNodeAttr("executor_type", executor, to);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateHostCall(tensorflow::FunctionLibraryRuntime* runtime,
                            const std::shared_ptr<const NodeProperties>& props,
                            const std::string& function,
                            std::unique_ptr<tensorflow::OpKernel>* kernel) {
  const tensorflow::OpDef* op = nullptr;
  absl::Status status =
      tensorflow::OpRegistry::Global()->LookUpOpDef("StatefulPartitionedCall", &op);
  if (!status.ok()) return status;
  NodeDef node;
  node.set_name(props->node_def.name());
  node.set_op(op->name());
  node.set_device(props->node_def.device());
  *node.mutable_input() = props->node_def.input();
  status = CopyOptions(props->node_def, &node);
  if (!status.ok()) return status;
  tensorflow::NameAttrList callee;
  callee.set_name(function);
  tensorflow::AddNodeAttr("f", callee, &node);
  tensorflow::AddNodeAttr("Tin", props->input_types, &node);
  tensorflow::AddNodeAttr("Tout", props->output_types, &node);
  tensorflow::AddDefaultsToNodeDef(*op, &node);

  const auto call = std::make_shared<NodeProperties>(op, std::move(node), props->input_types,
                                                     props->output_types);
  tensorflow::Device* device = runtime->device();
  tensorflow::OpKernel* created = nullptr;
  // The runtime of a function within a graph makes no kernels itself.
  status = tensorflow::CreateOpKernel(DeviceType(device->device_type()), device,
                                      device->GetAllocator({}), runtime, device->resource_manager(),
                                      call, runtime->graph_def_version(), &created);
  if (status.ok()) kernel->reset(created);
  return status;
}

bool HasXlaKernel(NodeDef node) {
  tensorflow::XlaOpRegistry::RegisterCompilationKernels();
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op).ok()) return false;
  tensorflow::AddDefaultsToNodeDef(*op, &node);  // SavedModels leave them out
  return tensorflow::FindKernelDef(DeviceType(tensorflow::DEVICE_CPU_XLA_JIT), node, nullptr,
                                   nullptr)
      .ok();
}

}  // namespace hostcall
