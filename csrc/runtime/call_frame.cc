// XLA's call frame, read into a HostCall.
#include <Python.h>

#include <string>

#include "call.h"
#include "failure.h"
#include "frame.h"
#include "pool.h"
#include "registry.h"
#include "turns.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

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
    assign(buffers[index], dim, static_cast<int32_t*>(size.data));
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

HostCall::HostCall(const XLA_FFI_CallFrame& frame, const Attributes& attributes)
    : id(attributes.callback),
      callback(Registry::Global().Find(id)),
      run(turns::RunOf(frame.api, frame.ctx)),
      operands(BuffersOf(frame.args)),
      results(BuffersOf(frame.rets)) {
  ordered = operands.size() < static_cast<size_t>(frame.args.size);
  // Another thread started this program, or XLA goes on here because a call has ended.
  if (OnPoolThread()) RunElsewhere();
}

void HostCall::ReadSizes(const Attributes& attributes) {
  TakeSizes(operands, attributes.dynamic_operands,
            [this](Buffer& buffer, size_t dim, const int32_t* size) {
              // XLA computes some bounded sizes wrong; no read may go past the end of memory.
              if (*size < 0 || *size > buffer.dims[dim]) throw WrongSize(*size, buffer.dims[dim]);
              if (buffer.true_dims == nullptr) {
                buffer.true_dims = dims.emplace_back(buffer.dims.begin(), buffer.dims.end()).data();
              }
              buffer.true_dims[dim] = *size;
            });
  TakeSizes(results, attributes.dynamic_results, [this](Buffer& buffer, size_t dim, int32_t* size) {
    if (buffer.sizes == nullptr) {
      buffer.sizes = sizes.emplace_back(buffer.dims.size(), nullptr).data();
    }
    buffer.sizes[dim] = size;
  });
  SetVisibleDtypes(operands, attributes.sub_byte_operands);
  SetVisibleDtypes(results, attributes.sub_byte_results);
}

void HostCall::RunElsewhere() {
  elsewhere = is_timed = true;
  if (PyGILState_GetThisThreadState() != nullptr) thread = PyThread_get_thread_ident();
}

void HostCall::OutliveFrame() {
  RunElsewhere();
  for (auto* buffers : {&operands, &results}) {
    for (Buffer& buffer : *buffers) {
      buffer.dims = dims.emplace_back(buffer.dims.begin(), buffer.dims.end());
    }
  }
}

}  // namespace hostcall
