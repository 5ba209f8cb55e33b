#include "host_call.h"

#include <utility>

#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"

namespace hostcall {

using tensorflow::DeviceType;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;

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
  // A call from a graph says how to run; one from eager code leaves it to the defaults.
  for (const char* name : {"config", "config_proto", "executor_type"}) {
    const auto known = props->node_def.attr().find(name);
    if (known != props->node_def.attr().end()) (*node.mutable_attr())[name] = known->second;
  }
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

bool HasXlaKernel(const NodeDef& node) {
  tensorflow::XlaOpRegistry::RegisterCompilationKernels();
  return tensorflow::FindKernelDef(DeviceType(tensorflow::DEVICE_CPU_XLA_JIT), node, nullptr,
                                   nullptr)
      .ok();
}

}  // namespace hostcall
