#include "call_frame.h"

#include <string>
#include <vector>

#include "failure.h"
#include "raw_buffers.h"
#include "recycled.h"
#include "registry.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

bool HasToken(const RawBuffers& args) { return args.size() > 0 && IsToken(*args[args.size() - 1]); }

// The buffers of one side of the frame, without the token.
void CopyBuffers(const RawBuffers& raw, RecycledVector<Buffer>& buffers) {
  buffers.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    const XLA_FFI_Buffer& buffer = *raw[i];
    if (IsToken(buffer)) continue;
    buffers.emplace_back(buffer);
  }
}

Failure WrongSize(int64_t size, int64_t bound) {
  return Failure(ffi::ErrorCode::kInternal,
                 "hostcall: an operand of a host callback has size " + std::to_string(size) +
                     " in a dimension that is bounded by " + std::to_string(bound) +
                     ". XLA computed it wrongly: some of its ops do so for results of bounded "
                     "size. Move the op out of the compiled function, or pad by hand.");
}

// Takes the true sizes off the end of `buffers`; `assign` puts each where its pair says.
template <typename Assign>
void TakeSizes(std::vector<Buffer>& buffers, Pairs pairs, Assign assign) {
  const size_t sizes = pairs.size() / 2;
  if (pairs.size() % 2 != 0 || sizes > buffers.size()) throw Failure::Malformed();
  const size_t count = buffers.size() - sizes;
  for (size_t i = 0; i < sizes; ++i) {
    const auto index = static_cast<size_t>(pairs[2 * i]);
    const auto dim = static_cast<size_t>(pairs[2 * i + 1]);
    const Buffer& size = buffers[count + i];
    if (index >= count || dim >= buffers[index].dims.size() || size.dtype != ffi::DataType::S32 ||
        size.dims.size() != 0 || size.data == nullptr) {
      throw Failure::Malformed();
    }
    assign(buffers[index], dim, static_cast<int32_t*>(size.data));
  }
  buffers.resize(count);
}

void SetVisibleDtypes(std::vector<Buffer>& buffers, Pairs pairs) {
  if (pairs.size() % 2 != 0) throw Failure::Malformed();
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const auto index = static_cast<size_t>(pairs[i]);
    if (index >= buffers.size()) throw Failure::Malformed();
    buffers[index].visible_dtype = static_cast<ffi::DataType>(pairs[i + 1]);
  }
}

}  // namespace

HostCall ReadFrame(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                   int64_t callback) {
  HostCall call;
  call.id = callback;
  call.callback = Registry::Global().Find(call.id);
  const RawBuffers operands(args);
  call.ordered = HasToken(operands);
  CopyBuffers(operands, call.operands);
  CopyBuffers(RawBuffers(rets), call.results);
  return call;
}

void ReadAttributes(HostCall& call, const Attributes& attributes) {
  TakeSizes(call.operands, attributes.dynamic_operands,
            [](Buffer& buffer, size_t dim, const int32_t* size) {
              // XLA computes some bounded sizes wrong; memory must not be read past its end for it.
              if (*size < 0 || *size > buffer.dims[dim]) throw WrongSize(*size, buffer.dims[dim]);
              if (buffer.true_dims.empty()) {
                buffer.true_dims.assign(buffer.dims.begin(), buffer.dims.end());
              }
              buffer.true_dims[dim] = *size;
            });
  TakeSizes(call.results, attributes.dynamic_results,
            [](Buffer& buffer, size_t dim, int32_t* size) {
              buffer.sizes.resize(buffer.dims.size(), nullptr);
              buffer.sizes[dim] = size;
            });
  SetVisibleDtypes(call.operands, attributes.sub_byte_operands);
  SetVisibleDtypes(call.results, attributes.sub_byte_results);
}

}  // namespace hostcall
