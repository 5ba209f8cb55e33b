// XLA's buffers as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "small_vector.h"
#include "xla/ffi/api/ffi.h"

namespace hostcall {

using Dims = xla::ffi::Span<const int64_t>;

// A buffer of a call frame, which is gone when the handler has returned: see OwningCall.
struct Buffer {
  Buffer() = default;
  explicit Buffer(const XLA_FFI_Buffer& raw)
      : dtype(static_cast<xla::ffi::DataType>(raw.dtype)),
        visible_dtype(dtype),
        data(raw.data),
        dims(raw.dims, static_cast<size_t>(raw.rank)) {}

  xla::ffi::DataType dtype;
  // What the callback has in its place: int4 where the buffer holds int8, since XLA packs int4.
  xla::ffi::DataType visible_dtype;
  void* data = nullptr;
  // The allocated size of each dimension.
  Dims dims;
  // The true size of each dimension, at most the allocated one. Null where the two are the same.
  const int64_t* true_dims = nullptr;
  // For results: where the true size of a bounded dimension goes, null for the static ones. Null
  // where every dimension is static.
  int32_t* const* sizes = nullptr;

  // The size that an array of it has in each dimension.
  Dims shape() const { return true_dims == nullptr ? dims : Dims(true_dims, dims.size()); }
};

// Most calls have few.
using Buffers = SmallVector<Buffer, 4>;

// Loads NumPy's C API. To be called once, with the GIL, before anything else of this file.
void ImportNumpy();

// Tells the NumPy dtype of an FFI dtype, and how messages call it.
void SetDtype(int code, nanobind::object dtype, std::string name);

// A writable array with memory of its own, or a NumPy scalar for rank 0. Needs the GIL.
nanobind::object ToNumpy(const Buffer& buffer);

// The same in memory that `empty` gives, a function of a shape and a dtype that returns such an
// array: any from a size on that is worth it, and NumPy's own below.
nanobind::object ToNumpy(const Buffer& buffer, nanobind::handle empty);

// An array that is only to be read: over the memory of `buffer` itself, if `share` says so and that
// can be kept for as long as the array is referred to, and else over a copy. Not for rank 0.
nanobind::object Borrow(const Buffer& buffer, bool share);

// A writable array of arbitrary values, for a callback to write a result into.
struct OutArray {
  nanobind::object array;
  bool borrowed;  // whether it lies in the memory of the result
};
OutArray MakeOutArray(const Buffer& result, bool share);

// How large what is allocated for a buffer is. Does not want the GIL. Throws Failure where NumPy
// has no such dtype, or no memory is so large.
int64_t SizeInBytes(const Buffer& buffer);

}  // namespace hostcall
