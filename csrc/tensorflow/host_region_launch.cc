// The kernel that launches a program with regions.
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "functions/call_kernel.h"
#include "host_region.h"
#include "launch.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace hostcall {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorValue;

using Regions = std::vector<std::unique_ptr<Region>>;

Tensor Number(int64_t value) {
  Tensor tensor(tensorflow::DT_INT64, tensorflow::TensorShape({}));
  tensor.scalar<int64_t>()() = value;
  return tensor;
}

// One launch. Numbers replace values that XLA cannot hold, both in arguments and in results.
class RegionRun {
 public:
  RegionRun(OpKernelContext* outer, const Regions* regions, OpKernel* launch)
      : outer_(outer),
        scope_(outer, regions),
        inputs_(Inputs(*launch)),
        inner_(Parameters(), outer->num_outputs(), launch) {}

  OpKernelContext* inner() { return inner_.get(); }

  void HandOver() {
    if (!inner()->status().ok()) {
      outer_->SetStatus(inner()->status());
      return;
    }
    for (int i = 0; i < outer_->num_outputs(); ++i) {
      const std::unique_ptr<Tensor> output(inner()->release_output(i).tensor);
      if (output == nullptr) continue;
      if (!IsReference(outer_->expected_output_dtype(i)) ||
          output->dtype() != tensorflow::DT_INT64) {
        outer_->set_output(i, std::move(*output));
        continue;
      }
      absl::StatusOr<Tensor> value = scope_.ValueOf(output->scalar<int64_t>()());
      OP_REQUIRES_OK(outer_, value.status());
      outer_->set_output(i, *std::move(value));
    }
  }

 private:
  std::vector<TensorValue> Inputs(const OpKernel& launch) {
    std::vector<TensorValue> inputs(outer_->params()->inputs.begin(),
                                    outer_->params()->inputs.end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int index = static_cast<int>(i);
      if (launch.input_type(index) == outer_->input_dtype(index)) continue;
      inputs[i] = TensorValue(&numbers_.emplace_back(Number(scope_.Keep(outer_->input(index)))));
    }
    inputs.push_back(
        TensorValue(&numbers_.emplace_back(Number(reinterpret_cast<int64_t>(&scope_)))));
    return inputs;
  }

  OpKernelContext::Params Parameters() const {
    OpKernelContext::Params params = ParamsOf(*outer_);
    params.inputs = inputs_;
    return params;
  }

  OpKernelContext* const outer_;
  RegionScope scope_;
  std::deque<Tensor> numbers_;
  std::vector<TensorValue> inputs_;
  InnerContext inner_;
};

class RegionLaunchKernel : public AsyncOpKernel {
 public:
  RegionLaunchKernel(tensorflow::OpKernelConstruction* construction, Regions regions,
                     KernelPtr launch)
      : AsyncOpKernel(construction), regions_(std::move(regions)), launch_(std::move(launch)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    auto run = std::make_unique<RegionRun>(ctx, &regions_, launch_.get());
    OpKernelContext* const inner = run->inner();
    ComputeHolding(
        std::move(run), launch_->AsAsync(), inner, [](const auto& ended) { ended->HandOver(); },
        std::move(done));
  }

 private:
  const Regions regions_;
  const KernelPtr launch_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const NodeProperties>> RegionLaunchNode(
    const NodeProperties& props, const tensorflow::FunctionDef& function) {
  tensorflow::DataTypeVector inputs, outputs;
  for (const auto& arg : function.signature().input_arg()) inputs.push_back(arg.type());
  for (const auto& result : function.signature().output_arg()) outputs.push_back(result.type());
  NodeDef node;
  tensorflow::AddNodeAttr("_XlaMustCompile", true, &node);
  tensorflow::NameAttrList program;
  program.set_name(function.signature().name());
  return CallInPlaceOf(props.node_def, program, inputs, outputs, std::move(node));
}

absl::Status LaunchWithRegions(const KernelRequest& request,
                               const std::vector<std::string>& regions, KernelPtr* launch) {
  Regions made;
  for (const std::string& name : regions) {
    const tensorflow::FunctionDef* function = request.library().Find(name);
    if (function == nullptr) {
      return absl::InternalError(absl::StrCat("hostcall: there is no region ", name));
    }
    TF_ASSIGN_OR_RETURN(made.emplace_back(), Region::Create(*function, request.runtime));
  }
  return WrapKernel<RegionLaunchKernel>(request, launch, std::move(made));
}

}  // namespace hostcall
