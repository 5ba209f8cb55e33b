// The custom call by which a compiled program calls a region.
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host_region.h"
#include "module.h"
#include "runtime/frame.h"
#include "starters.h"
#include "tensorflow/core/framework/allocator.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace hostcall {

namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// Memory of an operand, which is the program's and must not be written to. TensorFlow does not
// write to a tensor that does not own its memory.
class OperandMemory : public tensorflow::TensorBuffer {
 public:
  OperandMemory(void* data, size_t size) : TensorBuffer(data), size_(size) {}

  size_t size() const override { return size_; }
  TensorBuffer* root_buffer() override { return this; }
  bool OwnsMemory() const override { return false; }
  void FillAllocationDescription(tensorflow::AllocationDescription*) const override {}

 private:
  const size_t size_;
};

struct Buffer {
  void* data;
  TensorShape shape;
};

// A call, with its data from the frame, which may be gone when the call runs.
struct RegionCall {
  RegionScope* scope = nullptr;
  const Region* region = nullptr;
  std::vector<Buffer> operands;
  std::vector<Buffer> results;
};

// Returns the buffers from `begin` on, without tokens.
std::vector<Buffer> BuffersFrom(const RawBuffers& raw, size_t begin) {
  std::vector<Buffer> buffers;
  for (size_t i = begin; i < raw.size(); ++i) {
    if (IsToken(*raw[i])) continue;
    TensorShape shape;
    for (int64_t dim = 0; dim < raw[i]->rank; ++dim) shape.AddDim(raw[i]->dims[dim]);
    buffers.push_back({raw[i]->data, std::move(shape)});
  }
  return buffers;
}

RegionCall ReadFrame(const XLA_FFI_CallFrame& frame) {
  int64_t index = 0;
  AttributeReader(frame.attrs).Take("region", index).End();
  const RawBuffers args(frame.args);
  if (args.size() == 0 || args[0]->dtype != XLA_FFI_DataType_S64) {
    throw Failure(ffi::ErrorCode::kInternal, "hostcall: malformed call of a region");
  }
  RegionCall call;
  call.scope = reinterpret_cast<RegionScope*>(*static_cast<int64_t*>(args[0]->data));
  call.region = call.scope->region(index);
  call.operands = BuffersFrom(args, 1);
  call.results = BuffersFrom(RawBuffers(frame.rets), 0);
  if (call.region == nullptr || call.operands.size() != call.region->input_types().size() ||
      call.results.size() != call.region->output_types().size()) {
    throw Failure(ffi::ErrorCode::kInternal,
                  "hostcall: a call of a region does not fit the region");
  }
  return call;
}

bool IsAligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % tensorflow::Allocator::kAllocatorAlignment == 0;
}

absl::StatusOr<Tensor> ToInput(const RegionCall& call, size_t i) {
  const Buffer& operand = call.operands[i];
  const tensorflow::DataType dtype = call.region->input_types()[i];
  if (IsReference(dtype)) return call.scope->ValueOf(*static_cast<int64_t*>(operand.data));
  const size_t bytes = operand.shape.num_elements() * tensorflow::DataTypeSize(dtype);
  if (bytes > 0 && IsAligned(operand.data) && !call.region->keeps_inputs()) {
    auto* memory = new OperandMemory(operand.data, bytes);
    const tensorflow::core::ScopedUnref unref(memory);  // the tensor has a reference of its own
    return Tensor(dtype, operand.shape, memory);
  }
  Tensor copy(dtype, operand.shape);
  if (bytes > 0) std::memcpy(copy.data(), operand.data, bytes);
  return copy;
}

absl::Status GiveResult(const RegionCall& call, size_t i, const Tensor& value) {
  const Buffer& result = call.results[i];
  const tensorflow::DataType dtype = call.region->output_types()[i];
  if (IsReference(dtype)) {
    *static_cast<int64_t*>(result.data) = call.scope->Keep(value);
    return absl::OkStatus();
  }
  if (value.dtype() != dtype || value.shape() != result.shape) {
    return absl::InternalError(absl::StrCat("hostcall: TensorFlow's kernel returned ",
                                            value.DeviceSafeDebugString(), ", where its ",
                                            "shape function says ", result.shape.DebugString()));
  }
  if (value.TotalBytes() > 0) std::memcpy(result.data, value.data(), value.TotalBytes());
  return absl::OkStatus();
}

absl::Status RunRegion(const RegionCall& call) {
  const starters::Scope scope(call.scope->run());
  std::vector<Tensor> inputs;
  inputs.reserve(call.region->slots());
  for (size_t i = 0; i < call.operands.size(); ++i) {
    TF_ASSIGN_OR_RETURN(inputs.emplace_back(), ToInput(call, i));
  }
  std::vector<Tensor> outputs;
  TF_RETURN_IF_ERROR(call.region->Run(call.scope->outer(), std::move(inputs), &outputs));
  for (size_t i = 0; i < outputs.size(); ++i) TF_RETURN_IF_ERROR(GiveResult(call, i, outputs[i]));
  return absl::OkStatus();
}

ffi::Error ToError(const absl::Status& status) {
  return ffi::Error(static_cast<ffi::ErrorCode>(status.code()), std::string(status.message()));
}

Result Handle(const XLA_FFI_CallFrame& frame) {
  RegionCall call = ReadFrame(frame);
  if (!call.region->waits()) {
    const absl::Status run = RunRegion(call);
    if (run.ok()) return {};
    return {std::nullopt, ToError(run)};
  }
  ffi::Promise promise;
  ffi::Future future(promise);
  const absl::Status started = RunBesideTensorFlow([promise, call = std::move(call)]() mutable {
    const absl::Status run = RunRegion(call);
    run.ok() ? promise.SetAvailable() : promise.SetError(ToError(run));
  });
  if (!started.ok()) return {std::nullopt, ToError(started)};
  return {std::move(future), std::nullopt};
}

}  // namespace
}  // namespace hostcall

extern "C" XLA_FFI_Error* HostcallRegionHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::Handle);
}
