// NumPy's C API, for the files that use it: dtypes.cc, arrays.cc, results.cc.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL hostcall_numpy
#ifndef HOSTCALL_DEFINES_NUMPY  // one file does
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
  // Makes an array of a value and of `descr` or None; null where NumPy does it by itself.
  nanobind::object convert = {};
};

// By their codes. Leaked: it holds Python objects, which must not be released after the interpreter
// is gone.
inline std::vector<Dtype>* const dtypes = new std::vector<Dtype>();

Failure NoDtype(xla::ffi::DataType code);

// Throws Failure where NumPy has no such dtype.
inline const Dtype& DtypeOf(xla::ffi::DataType code) {
  const auto index = static_cast<size_t>(code);
  if (index >= dtypes->size() || !(*dtypes)[index].descr.is_valid()) throw NoDtype(code);
  return (*dtypes)[index];
}

// The dtype that messages call so, or null.
const Dtype* FindDtype(const std::string& name);

// Whether an array is of a dtype, in whichever byte order. Strings go by their name.
bool HasDtype(nanobind::handle array, const Dtype& dtype);

// The name of an array's dtype as TensorFlow has it. Throws Failure where it has none.
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

// Their comparison operator calls a function of the C library, however few there are.
inline bool AreSame(Dims one, Dims other) {
  if (one.size() != other.size()) return false;
  for (size_t i = 0; i < one.size(); ++i) {
    if (one[i] != other[i]) return false;
  }
  return true;
}

// XLA has no address for an empty buffer, and NumPy takes a null one for "allocate yourself".
bool IsEmpty(Dims dims);

// An array over `buffer`'s memory: no copy, and to be dropped before the call ends. `true_dims` may
// be smaller than what is allocated, which the strides then step over.
nanobind::object View(const Buffer& buffer, Dims true_dims, int flags);

// Copies values from one array to another. NumPy releases the GIL for larger ones.
void CopyInto(nanobind::handle to, nanobind::handle from);

}  // namespace hostcall
