#include "call_frame.h"

#include <string>
#include <vector>

#include "failure.h"
#include "frame.h"
#include "pool.h"
#include "registry.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

bool HasToken(const RawBuffers& args) { return args.size() > 0 && IsToken(*args[args.size() - 1]); }

// Copies the buffers of one side of the frame, without the token.
void CopyBuffers(const RawBuffers& raw, Buffers& buffers) {
  for (const XLA_FFI_Buffer* buffer : raw) {
    if (!IsToken(*buffer)) buffers.emplace_back(*buffer);
  }
}

Failure WrongSize(int64_t size, int64_t bound) {
  return Failure(ffi::ErrorCode::kInternal,
                 "hostcall: an operand of a host callback has size " + std::to_string(size) +
                     " in a dimension that is bounded by " + std::to_string(bound) +
                     ". XLA computed it wrongly: some of its ops do so for results of bounded "
                     "size. Move the op out of the compiled function, or pad by hand.");
}

// Takes the true sizes off the end of `buffers`. Each has a pair, the index of a buffer and a
// dimension, for which `assign` stores it.
template <typename Assign>
void TakeSizes(Buffers& buffers, Pairs pairs, Assign assign) {
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
    assign(index, dim, static_cast<int32_t*>(size.data));
  }
  buffers.resize(count);
}

void SetVisibleDtypes(Buffers& buffers, Pairs pairs) {
  if (pairs.size() % 2 != 0) throw Failure::Malformed();
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const auto index = static_cast<size_t>(pairs[i]);
    if (index >= buffers.size()) throw Failure::Malformed();
    buffers[index].visible_dtype = static_cast<ffi::DataType>(pairs[i + 1]);
  }
}

}  // namespace

HostCall ReadFrame(const XLA_FFI_CallFrame& frame, int64_t callback) {
  const RawBuffers args(frame.args), rets(frame.rets);
  HostCall call;
  call.id = callback;
  call.callback = Registry::Global().Find(call.id);
  call.ordered = HasToken(args);
  CopyBuffers(args, call.operands);
  CopyBuffers(rets, call.results);
  // Another thread started this program, or XLA goes on here because a call has ended.
  if (OnPoolThread()) call.RunsElsewhere();
  return call;
}

void ReadAttributes(HostCall& call, const Attributes& attributes) {
  TakeSizes(call.operands, attributes.dynamic_operands,
            [&](size_t index, size_t dim, const int32_t* size) {
              Buffer& buffer = call.operands[index];
              // XLA computes some bounded sizes wrong; no read may go past the end of memory.
              if (*size < 0 || *size > buffer.dims[dim]) throw WrongSize(*size, buffer.dims[dim]);
              call.true_dims.resize(call.operands.size());
              std::vector<int64_t>& true_dims = call.true_dims[index];
              if (true_dims.empty()) true_dims.assign(buffer.dims.begin(), buffer.dims.end());
              true_dims[dim] = *size;
              buffer.true_dims = true_dims.data();
            });
  TakeSizes(call.results, attributes.dynamic_results, [&](size_t index, size_t dim, int32_t* size) {
    Buffer& buffer = call.results[index];
    call.sizes.resize(call.results.size());
    call.sizes[index].resize(buffer.dims.size(), nullptr);
    call.sizes[index][dim] = size;
    buffer.sizes = call.sizes[index].data();
  });
  SetVisibleDtypes(call.operands, attributes.sub_byte_operands);
  SetVisibleDtypes(call.results, attributes.sub_byte_results);
}

}  // namespace hostcall
