// The kernels of script ops on the CPU, outside of compiled programs.
#include <atomic>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "callee.h"
#include "kernels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace hostcall::serving {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

Argument ToArgument(const Tensor& tensor) {
  Argument argument;
  argument.dtype = tensor.dtype();
  const auto sizes = tensor.shape().dim_sizes();
  argument.shape.assign(sizes.begin(), sizes.end());
  if (tensor.dtype() == tensorflow::DT_STRING) {
    const auto texts = tensor.flat<tstring>();
    for (int64_t i = 0; i < texts.size(); ++i) argument.strings.emplace_back(texts(i));
  } else {
    argument.bytes = tensor.tensor_data();
  }
  return argument;
}

// Sink that makes a kernel's outputs of the results.
class Outputs : public ResultSink {
 public:
  explicit Outputs(OpKernelContext* ctx) : ctx_(ctx) {}

  char* Allocate(size_t index, const std::vector<int64_t>& shape, size_t bytes) override {
    static char nothing = 0;
    Tensor* tensor = Output(index, shape);
    if (tensor == nullptr || tensor->tensor_data().size() != bytes) return nullptr;
    return bytes == 0 ? &nothing : static_cast<char*>(tensor->data());
  }

  bool AllocateStrings(size_t index, const std::vector<int64_t>& shape) override {
    texts_ = Output(index, shape);
    return texts_ != nullptr && texts_->dtype() == tensorflow::DT_STRING;
  }

  void SetString(size_t, size_t element, std::string_view text) override {
    auto texts = texts_->flat<tstring>();
    if (element < static_cast<size_t>(texts.size())) {
      texts(static_cast<int64_t>(element)).assign(text.data(), text.size());
    }
  }

 private:
  // Returns null if the index or the shape is invalid, or if allocation fails.
  Tensor* Output(size_t index, const std::vector<int64_t>& sizes) {
    tensorflow::TensorShape shape;
    Tensor* tensor = nullptr;
    if (index >= static_cast<size_t>(ctx_->num_outputs()) ||
        !tensorflow::TensorShape::BuildTensorShape(sizes, &shape).ok() ||
        !ctx_->allocate_output(static_cast<int>(index), shape, &tensor).ok()) {
      return nullptr;
    }
    return tensor;
  }

  OpKernelContext* const ctx_;
  Tensor* texts_ = nullptr;
};

// Has a worker call a Python function with the inputs of a kernel, and sets the kernel's outputs.
absl::Status CallWorkerWith(const Callee& callee, OpKernelContext* ctx) {
  WorkerCall call{ctx->op_kernel().type_string_view(), callee.text, {}, {}};
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    const tensorflow::DataType dtype = ctx->input_dtype(i);
    // The arena cannot hold lists, resources and 4-bit numbers.
    if (dtype != tensorflow::DT_STRING && !tensorflow::DataTypeCanUseMemcpy(dtype)) {
      return absl::UnimplementedError(
          absl::StrCat("hostcall: the Python function ", callee.token.label, " takes a ",
                       tensorflow::DataTypeString(dtype), ", which cannot be sent to a worker."));
    }
    call.arguments.push_back(ToArgument(ctx->input(i)));
  }
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    call.result_dtypes.push_back(ctx->expected_output_dtype(i));
  }
  Outputs outputs(ctx);
  return StatusOf(CallWorker(call, outputs));
}

class PlainKernel : public tensorflow::OpKernel {
 public:
  explicit PlainKernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("token", &token_));
  }

  // Fails the call, not the model, if the function cannot be called: a model has other functions.
  void Compute(tensorflow::OpKernelContext* ctx) override {
    const absl::StatusOr<const Callee*> callee = Found();
    OP_REQUIRES_OK(ctx, callee.status());
    OP_REQUIRES_OK(ctx, (*callee)->native != nullptr ? CallNative(**callee, ctx)
                                                     : CallWorkerWith(**callee, ctx));
  }

 private:
  absl::StatusOr<const Callee*> Found() {
    if (const Callee* known = callee_.load(std::memory_order_acquire)) return known;
    const absl::StatusOr<const Callee*> callee = FindCallee(token_);
    if (callee.ok()) callee_.store(*callee, std::memory_order_release);
    return callee;
  }

  std::string token_;
  std::atomic<const Callee*> callee_{nullptr};
};

}  // namespace

void RegisterPlainKernels() {
  using tensorflow::DEVICE_CPU;
  REGISTER_KERNEL_BUILDER(Name("PyFunc").Device(DEVICE_CPU), PlainKernel);
  REGISTER_KERNEL_BUILDER(Name("PyFuncStateless").Device(DEVICE_CPU), PlainKernel);
  REGISTER_KERNEL_BUILDER(Name("EagerPyFunc").Device(DEVICE_CPU), PlainKernel);
}

}  // namespace hostcall::serving
