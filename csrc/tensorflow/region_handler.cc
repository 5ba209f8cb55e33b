#include "region_handler.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compat/ffi.h"
#include "region.h"
#include "run_tracking.h"
#include "starters.h"
#include "tensorflow/core/framework/allocator.h"
#include "xla/ffi/api/ffi.h"

// From xla/ffi/ffi_api.h, which cannot be included: the wheel lacks the MLIR headers that it needs.
namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();
}

namespace ffi = xla::ffi;

namespace hostcall {

// Result of a call: a future if the call goes on elsewhere; otherwise an error, or success.
struct RegionResult {
  std::optional<ffi::Future> later;
  std::optional<ffi::Error> error;
};

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

Buffer ToBuffer(const ffi::AnyBuffer& buffer) {
  TensorShape shape;
  for (const int64_t size : buffer.dimensions()) shape.AddDim(size);
  return {buffer.untyped_data(), std::move(shape)};
}

template <typename Remaining, typename Get>
std::vector<Buffer> Buffers(const Remaining& remaining, size_t begin, Get get) {
  std::vector<Buffer> buffers;
  for (size_t i = begin; i < remaining.size(); ++i) {
    const ffi::AnyBuffer buffer = get(remaining, i);
    if (buffer.element_type() != ffi::DataType::TOKEN) buffers.push_back(ToBuffer(buffer));
  }
  return buffers;
}

absl::StatusOr<RegionCall> ReadFrame(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                                     int64_t index) {
  RegionCall call;
  const auto scope = args.get<ffi::AnyBuffer>(0);
  if (!scope.has_value() || scope->element_type() != ffi::DataType::S64) {
    return absl::InternalError("hostcall: malformed call of a region");
  }
  call.scope = reinterpret_cast<RegionScope*>(*static_cast<int64_t*>(scope->untyped_data()));
  call.region = call.scope->region(index);
  call.operands = Buffers(
      args, 1, [](const auto& all, size_t i) { return *all.template get<ffi::AnyBuffer>(i); });
  call.results = Buffers(
      rets, 0, [](const auto& all, size_t i) { return **all.template get<ffi::AnyBuffer>(i); });
  if (call.region == nullptr || call.operands.size() != call.region->input_types().size() ||
      call.results.size() != call.region->output_types().size()) {
    return absl::InternalError("hostcall: a call of a region does not fit the region");
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

absl::Status Run(const RegionCall& call) {
  const starters::Scope scope(call.scope->run());
  std::vector<Tensor> inputs;
  inputs.reserve(call.region->slots());
  for (size_t i = 0; i < call.operands.size(); ++i) {
    absl::StatusOr<Tensor> input = ToInput(call, i);
    if (!input.ok()) return input.status();
    inputs.push_back(*std::move(input));
  }
  std::vector<Tensor> outputs;
  if (absl::Status run = call.region->Run(call.scope->outer(), std::move(inputs), &outputs);
      !run.ok()) {
    return run;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (absl::Status given = GiveResult(call, i, outputs[i]); !given.ok()) return given;
  }
  return absl::OkStatus();
}

ffi::Error ToError(const absl::Status& status) {
  return ffi::Error(static_cast<ffi::ErrorCode>(status.code()), std::string(status.message()));
}

RegionResult Handle(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t index) {
  absl::StatusOr<RegionCall> call = ReadFrame(args, rets, index);
  if (!call.ok()) return {std::nullopt, ToError(call.status())};
  if (!call->region->waits()) {
    const absl::Status run = Run(*call);
    if (run.ok()) return {};
    return {std::nullopt, ToError(run)};
  }
  ffi::Promise promise;
  ffi::Future future(promise);
  const absl::Status started = RunBesideTensorFlow([promise, call = *std::move(call)]() mutable {
    const absl::Status run = Run(call);
    run.ok() ? promise.SetAvailable() : promise.SetError(ToError(run));
  });
  if (!started.ok()) return {std::nullopt, ToError(started)};
  return {std::move(future), std::nullopt};
}

}  // namespace
}  // namespace hostcall

// Encoding of an answer, which XLA takes at once, as that costs less, or as a future.
template <ffi::ExecutionStage stage>
struct ffi::ResultEncoding<stage, hostcall::RegionResult> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(const XLA_FFI_Api* api,
                                                              XLA_FFI_ExecutionContext* ctx,
                                                              hostcall::RegionResult result) {
    if (result.later.has_value()) {
      return ResultEncoding<stage, Future>::Encode(api, ctx, *std::move(result.later));
    }
    if (!result.error.has_value()) return static_cast<XLA_FFI_Error*>(nullptr);
    return ResultEncoding<stage, Error>::Encode(api, ctx, *std::move(result.error));
  }
};

HOSTCALL_DEFINE_HANDLER(HostcallRegionHandler, hostcall::Handle,
                        ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>("region"));

namespace hostcall {

absl::Status RegisterRegionHandler() {
  const std::string name = "hostcall_region";
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {name.data(), name.size()};
  args.platform = {"Host", 4};
  args.bundle.execute = HostcallRegionHandler;
  if (ffi::GetXlaFfiApi()->XLA_FFI_Handler_Register(&args) == nullptr) return absl::OkStatus();
  return absl::InternalError("hostcall: XLA does not take the handler of regions");
}

}  // namespace hostcall
