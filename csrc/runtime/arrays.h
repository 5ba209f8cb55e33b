// XLA's buffers as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "frame.h"
#include "small_vector.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

using Dims = xla::ffi::Span<const int64_t>;

// A buffer of a call frame, which is gone when the handler has returned.
struct Buffer {
  Buffer() = default;
  explicit Buffer(const XLA_FFI_Buffer& raw)
      : dtype(static_cast<xla::ffi::DataType>(raw.dtype)),
        visible_dtype(dtype),
        data(raw.data),
        dims(raw.dims, static_cast<size_t>(raw.rank)) {}

  xla::ffi::DataType dtype;
  // The dtype that the callback sees: int4 for a buffer of int8, since XLA packs int4.
  xla::ffi::DataType visible_dtype;
  void* data = nullptr;
  // The allocated size of each dimension.
  Dims dims;
  // The true size of each dimension, at most the allocated one. Null if the two are the same.
  int64_t* true_dims = nullptr;
  // For results: the address for the true size of each bounded dimension, null for a static one.
  // Null if every dimension is static.
  int32_t** sizes = nullptr;

  // Returns the size of its array in each dimension.
  Dims shape() const { return true_dims == nullptr ? dims : Dims(true_dims, dims.size()); }
};

// Buffers of a call; most calls have few.
using Buffers = SmallVector<Buffer, 4>;

// Returns the buffers of one side of a call frame, without tokens. Throws Failure.
template <typename Side>
Buffers BuffersOf(const Side& side) {
  Buffers buffers;
  for (const XLA_FFI_Buffer* buffer : RawBuffers(side)) {
    if (!IsToken(*buffer)) buffers.emplace_back(*buffer);
  }
  return buffers;
}

// The location of an array, in DLPack's terms, and the stream that it is ready on.
struct Place {
  static constexpr int kCpu = 1;
  static constexpr int kCuda = 2;

  int type = kCpu;
  int id = 0;
  uintptr_t stream = 0;  // a CUstream; 0 on the CPU
};

// Loads NumPy's C API. Call it once, with the GIL, before anything else of this file.
void ImportNumpy();

// Sets the NumPy dtype of an FFI dtype, and its name in messages.
void SetDtype(int code, nanobind::object dtype, std::string name);

// Returns a writable array with memory of its own, or a NumPy scalar for rank 0. Needs the GIL.
nanobind::object ToNumpy(const Buffer& buffer);

// Does the same, but a large array gets memory from `empty`, a function from a shape and a dtype to
// a writable array. A smaller one gets NumPy's own memory.
nanobind::object ToNumpy(const Buffer& buffer, nanobind::handle empty);

// Returns a read-only array: over the memory of `buffer` itself, if `share` is set and the memory
// can be kept while the array is referred to, otherwise over a copy. Not for rank 0.
nanobind::object Borrow(const Buffer& buffer, bool share);

// A writable array of arbitrary values, for a callback to write a result into.
struct OutArray {
  nanobind::object array;
  bool borrowed;  // true if it lies in the memory of the result
};
OutArray MakeOutArray(const Buffer& result, bool share);

// Returns the allocated size of a buffer. Does not need the GIL. Throws Failure if NumPy lacks the
// dtype, or if the size overflows.
int64_t SizeInBytes(const Buffer& buffer);

}  // namespace hostcall
