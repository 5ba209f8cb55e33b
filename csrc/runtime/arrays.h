// XLA's buffers as NumPy arrays, and NumPy arrays into XLA's buffers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace hostcall {

using Dims = xla::ffi::Span<const int64_t>;

// A buffer of a call frame, which is gone when the handler has returned: see KeptCall.
struct Buffer {
  xla::ffi::DataType dtype;
  // What the callback has in its place: int4 where the buffer holds int8, since XLA packs int4.
  xla::ffi::DataType visible_dtype;
  void* data;
  // The allocated size of each dimension.
  Dims dims;
  // The true size of each dimension, at most the allocated one. Empty where the two are the same.
  std::vector<int64_t> true_dims;
  // For results: where the true size of a bounded dimension goes, null for the static ones. Empty
  // where every dimension is static.
  std::vector<int32_t*> sizes;
};

// Loads NumPy's C API. To be called once, with the GIL, before anything else of this file.
void ImportNumpy();

// Tells the NumPy dtype of an FFI dtype, and how messages call it.
void SetDtype(int code, nanobind::object dtype, std::string name);

// A writable array with memory of its own, or a NumPy scalar for rank 0. Needs the GIL.
nanobind::object ToNumpy(const Buffer& buffer);

// An array that is only to be read: over the memory of `buffer` itself, if `lend` says so and that
// can be kept for as long as the array is referred to, and else over a copy. Not for rank 0.
nanobind::object Borrow(const Buffer& buffer, bool lend);

// A writable array of arbitrary values, for a callback to write a result into.
struct OutArray {
  nanobind::object array;
  bool lent;  // whether it lies in the memory of the result
};
OutArray MakeOutArray(const Buffer& result, bool lend);

// The values that a callback returned for `count` results, as a tuple; a lone value counts as one,
// None as none.
nanobind::object SplitResults(nanobind::handle returned, size_t count);

// What messages call the callback.
using Who = std::function<std::string()>;

// Throws Failure when the numbers differ. `who` names the callback in it, as in all that follow.
void CheckCount(size_t returned, size_t count, const Who& who);

// `value` as an array. May run code of the user's (`__array__`). Throws Failure for None.
nanobind::object ToArray(nanobind::handle value, const Buffer& result, size_t index,
                         const Who& who);

// Throws Failure when the dtype or the shape of the array is not that of `result`.
void CheckArray(nanobind::handle array, const Buffer& result, size_t index, const Who& who);

// Whether a value is an array that CheckArray would pass, and that can be copied as it lies in
// memory. Runs no code of the user's.
bool IsAsDeclared(nanobind::handle value, const Buffer& result);

// Copies an array that CheckArray has just passed, with no Python code run in between: the user may
// hold the array, and change its shape. XLA's memory is written here and nowhere else.
void CopyOut(nanobind::handle array, const Buffer& result);

// How large what is allocated for a buffer is.
int64_t SizeInBytes(const Buffer& buffer);

// Copies data that lies in memory as the result is to, whose sizes are all static.
void StoreBytes(const void* data, const Buffer& result);

}  // namespace hostcall
