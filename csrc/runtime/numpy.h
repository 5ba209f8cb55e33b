// NumPy's C API, for the files that use it.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL hostcall_numpy
#ifndef HOSTCALL_DEFINES_NUMPY  // dtypes.cc does
#define NO_IMPORT_ARRAY
#endif

#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>

#include <string>
#include <vector>

#include "arrays.h"
#include "failure.h"

namespace hostcall {

struct Dtype {
  nanobind::object descr;
  std::string name;
  // Makes an array from a value and `descr` or None; null if NumPy does it by itself.
  nanobind::object convert = {};
};

// The dtypes by their codes. Leaked: they are Python objects, which must not be released after the
// interpreter is gone.
inline std::vector<Dtype>* const dtypes = new std::vector<Dtype>();

Failure NoDtype(xla::ffi::DataType code);

// Returns the dtype of a code. Throws Failure if NumPy lacks it.
inline const Dtype& DtypeOf(xla::ffi::DataType code) {
  const auto index = static_cast<size_t>(code);
  if (index >= dtypes->size() || !(*dtypes)[index].descr.is_valid()) throw NoDtype(code);
  return (*dtypes)[index];
}

// Returns whether an array has a dtype, in any byte order. Strings go by their name.
bool HasDtype(nanobind::handle array, const Dtype& dtype);

// Returns TensorFlow's name for an array's dtype. Throws Failure if it has none.
std::string NameOfDtype(nanobind::handle array);

inline nanobind::object Checked(PyObject* object) {
  if (object == nullptr) throw nanobind::python_error();
  return nanobind::steal(object);
}

inline PyArrayObject* AsArray(nanobind::handle array) {
  return reinterpret_cast<PyArrayObject*>(array.ptr());
}

inline PyArray_Descr* AsDescr(nanobind::handle descr) {
  return reinterpret_cast<PyArray_Descr*>(descr.ptr());
}

inline Dims DimsOf(PyArrayObject* array) {
  return Dims(PyArray_DIMS(array), static_cast<size_t>(PyArray_NDIM(array)));
}

nanobind::tuple TupleOf(Dims dims);

// Compares sizes. Their comparison operator calls a function of the C library, even for a few.
inline bool AreSame(Dims one, Dims other) {
  if (one.size() != other.size()) return false;
  for (size_t i = 0; i < one.size(); ++i) {
    if (one[i] != other[i]) return false;
  }
  return true;
}

// Returns an array over memory. `base` keeps that, unless it is null. `strides` are bytes, null
// where there are no gaps.
nanobind::object ArrayOver(void* data, nanobind::object descr, Dims dims, const npy_intp* strides,
                           int flags, nanobind::object base);

// Returns an array over `buffer`'s memory without a copy, to be dropped before the call ends
// unless `base` keeps that memory. `true_dims` may be smaller than the allocated sizes, which the
// strides then step over.
nanobind::object View(const Buffer& buffer, Dims true_dims, int flags, nanobind::object base = {});

// Copies values from one array to another. NumPy releases the GIL for larger ones.
void CopyInto(nanobind::handle to, nanobind::handle from);

}  // namespace hostcall
