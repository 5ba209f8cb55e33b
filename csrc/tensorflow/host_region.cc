#include "host_region.h"

#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "functions/call_kernel.h"
#include "functions/reachable.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"

namespace hostcall {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

bool IsReference(tensorflow::DataType dtype) {
  return dtype == tensorflow::DT_STRING || dtype == tensorflow::DT_VARIANT ||
         dtype == tensorflow::DT_RESOURCE;
}

// Builder of the steps of a region from the nodes of its function.
class Region::Builder {
 public:
  Builder(FunctionLibraryRuntime* runtime, Region* region) : runtime_(runtime), region_(region) {}

  absl::Status Build(const FunctionDef& function) {
    for (const auto& arg : function.signature().input_arg()) {
      slots_[arg.name()] = region_->slots_++;
      region_->input_types_.push_back(arg.type());
      region_->keeps_inputs_ |= IsKept(arg.type());
    }
    for (const NodeDef& node : function.node_def()) {
      if (node.op() == "Const") TF_RETURN_IF_ERROR(AddConstant(node));
    }
    for (const NodeDef& node : function.node_def()) {
      if (node.op() != "Const") TF_RETURN_IF_ERROR(AddStep(node));
    }
    for (const auto& result : function.signature().output_arg()) {
      TF_ASSIGN_OR_RETURN(region_->results_.emplace_back(),
                          SlotOf(function.ret().at(result.name())));
      region_->output_types_.push_back(result.type());
    }
    return absl::OkStatus();
  }

 private:
  // Returns true for variants, which hold other values, and for resources, which may keep those.
  static bool IsKept(tensorflow::DataType dtype) {
    return dtype == tensorflow::DT_VARIANT || dtype == tensorflow::DT_RESOURCE;
  }

  absl::Status AddConstant(const NodeDef& node) {
    const auto value = node.attr().find("value");
    Tensor tensor;
    if (value == node.attr().end() || !tensor.FromProto(value->second.tensor())) {
      return absl::InternalError(absl::StrCat("hostcall: constant ", node.name(), " has no value"));
    }
    region_->constants_.push_back(std::move(tensor));
    slots_[absl::StrCat(node.name(), ":output:0")] = region_->slots_++;
    return absl::OkStatus();
  }

  absl::Status AddStep(const NodeDef& node) {
    std::shared_ptr<const NodeProperties> props;
    TF_RETURN_IF_ERROR(
        NodeProperties::CreateFromNodeDef(node, tensorflow::OpRegistry::Global(), &props));
    Step step;
    for (const std::string& input : node.input()) {
      if (input[0] == '^') continue;  // the nodes are ordered already
      TF_ASSIGN_OR_RETURN(step.inputs.emplace_back(), SlotOf(input));
    }
    TF_RETURN_IF_ERROR(
        CreateKernelFor(runtime_->device()->device_type(), {runtime_, props}, &step.kernel));
    tensorflow::NameRangeMap ranges;
    TF_RETURN_IF_ERROR(tensorflow::NameRangesForNode(node, *props->op_def, nullptr, &ranges));
    step.first_output = region_->slots_;
    for (const auto& [name, range] : ranges) {
      for (int i = range.first; i < range.second; ++i) {
        slots_[absl::StrCat(node.name(), ":", name, ":", i - range.first)] = region_->slots_ + i;
      }
    }
    region_->slots_ += step.kernel->num_outputs();
    step.output_attributes.resize(step.kernel->num_outputs());
    region_->waits_ |= step.kernel->AsAsync() != nullptr;
    region_->keeps_inputs_ |= IsScriptOp(node.op());  // the function may keep its arguments
    for (const auto dtype : props->input_types) region_->keeps_inputs_ |= IsKept(dtype);
    for (const auto dtype : props->output_types) region_->keeps_inputs_ |= IsKept(dtype);
    region_->steps_.push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::StatusOr<int> SlotOf(const std::string& value) const {
    const auto found = slots_.find(value);
    if (found != slots_.end()) return found->second;
    return absl::InternalError(absl::StrCat("hostcall: a region has no value ", value));
  }

  FunctionLibraryRuntime* const runtime_;
  Region* const region_;
  std::unordered_map<std::string, int> slots_;  // by the values' names in FunctionDefs
};

absl::StatusOr<std::unique_ptr<Region>> Region::Create(const FunctionDef& function,
                                                       FunctionLibraryRuntime* runtime) {
  auto region = std::make_unique<Region>();
  TF_RETURN_IF_ERROR(Builder(runtime, region.get()).Build(function));
  return region;
}

absl::Status Region::Run(const OpKernelContext& outer, std::vector<Tensor> inputs,
                         std::vector<Tensor>* outputs) const {
  if (outer.cancellation_manager() != nullptr && outer.cancellation_manager()->IsCancelled()) {
    return absl::CancelledError("The call of the compiled function was cancelled.");
  }
  std::vector<Tensor>& slots = inputs;
  slots.insert(slots.end(), constants_.begin(), constants_.end());
  slots.resize(slots_);
  // The launching kernel holds the context until the program has ended.
  OpKernelContext::Params params = ParamsOf(outer);
  params.op_device_context = nullptr;
  params.forward_from_array = nullptr;  // planned by the executor for the launching op
  for (const Step& step : steps_) {
    if (absl::Status run = RunStep(step, params, slots); !run.ok()) {
      return tensorflow::AttachDef(run, step.kernel->def());
    }
  }
  for (const int slot : results_) outputs->push_back(slots[slot]);
  return absl::OkStatus();
}

absl::Status Region::RunStep(const Step& step, OpKernelContext::Params& params,
                             std::vector<Tensor>& slots) const {
  std::vector<tensorflow::TensorValue> inputs;
  inputs.reserve(step.inputs.size());
  for (const int slot : step.inputs) inputs.emplace_back(&slots[slot]);
  params.inputs = inputs;
  params.op_kernel = step.kernel.get();
  params.output_attr_array = step.output_attributes.data();
  OpKernelContext ctx(&params, step.kernel->num_outputs());
  step.kernel->Compute(&ctx);  // waits, if the kernel is asynchronous
  if (!ctx.status().ok()) return ctx.status();
  for (int i = 0; i < step.kernel->num_outputs(); ++i) {
    const std::unique_ptr<Tensor> output(ctx.release_output(i).tensor);
    if (output != nullptr) slots[step.first_output + i] = std::move(*output);
  }
  return absl::OkStatus();
}

const Region* RegionScope::region(int64_t index) const {
  if (index < 0 || index >= static_cast<int64_t>(regions_->size())) return nullptr;
  return (*regions_)[index].get();
}

int64_t RegionScope::Keep(Tensor value) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_.push_back(std::move(value));
  return static_cast<int64_t>(values_.size()) - 1;
}

absl::StatusOr<Tensor> RegionScope::ValueOf(int64_t reference) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reference < 0 || reference >= static_cast<int64_t>(values_.size())) {
    return absl::InternalError("hostcall: a program has a reference to no value of its launch");
  }
  return values_[reference];
}

}  // namespace hostcall
