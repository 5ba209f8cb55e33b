#include "worker_tensors.h"

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/tensor.h"
#include "worker/worker_client.h"
#include "worker_status.h"

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

// Returns false for values that the arena cannot hold: lists, resources, 4-bit numbers.
bool IsSendable(tensorflow::DataType dtype) {
  return dtype == tensorflow::DT_STRING || tensorflow::DataTypeCanUseMemcpy(dtype);
}

}  // namespace

absl::Status CallWorkerWith(const Callee& callee, OpKernelContext* ctx) {
  WorkerCall call;
  call.op = ctx->op_kernel().type_string_view();
  call.token = callee.text;
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    if (!IsSendable(ctx->input_dtype(i))) {
      return absl::UnimplementedError(absl::StrCat(
          "hostcall: the Python function ", callee.token.label, " takes a ",
          tensorflow::DataTypeString(ctx->input_dtype(i)), ", which cannot be sent to a worker."));
    }
    call.arguments.push_back(ToArgument(ctx->input(i)));
  }
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    call.result_dtypes.push_back(ctx->expected_output_dtype(i));
  }
  Outputs outputs(ctx);
  return StatusOf(CallWorker(call, outputs));
}

}  // namespace hostcall::serving
