#include "results.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "numpy.h"
#include "pages.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// True if a size is 0: XLA has no address then, and NumPy takes null for "allocate yourself".
bool IsEmpty(Dims dims) { return std::find(dims.begin(), dims.end(), 0) != dims.end(); }

}  // namespace

DeclaredResult DeclaredAs(const Buffer& result) {
  DeclaredResult declared{&DtypeOf(result.visible_dtype), result.dims};
  if (result.sizes == nullptr) return declared;
  for (size_t i = 0; i < result.dims.size(); ++i) {
    declared.bounded.push_back(result.sizes[i] != nullptr);
  }
  return declared;
}

bool IsAsDeclared(nb::handle value, const Buffer& result) {
  if (!PyArray_CheckExact(value.ptr()) || result.sizes != nullptr) return false;
  auto* expected = AsDescr(DtypeOf(result.visible_dtype).descr);
  return PyArray_TYPE(AsArray(value)) == expected->type_num &&
         result.visible_dtype == result.dtype && PyArray_ISCARRAY_RO(AsArray(value)) &&
         AreSame(DimsOf(AsArray(value)), result.dims);
}

void CopyAsDeclared(nb::handle array, const Buffer& result) {
  PyArrayObject* source = AsArray(array);
  StoreBytes(PyArray_DATA(source), static_cast<size_t>(PyArray_NBYTES(source)), result);
}

bool IsScalarAsDeclared(nb::handle value, const Buffer& result) {
  if (result.dims.size() != 0 || result.visible_dtype != result.dtype) return false;
  if (PyFloat_CheckExact(value.ptr())) return result.dtype == ffi::DataType::F64;
  if (PyBool_Check(value.ptr())) return result.dtype == ffi::DataType::PRED;
  // Scalars of dtypes that NumPy itself lacks have a memory layout of their makers' choice.
  const PyArray_Descr* expected = AsDescr(DtypeOf(result.dtype).descr);
  return Py_TYPE(value.ptr()) == expected->typeobj && expected->type_num < NPY_OBJECT;
}

void CopyScalarOut(nb::handle value, const Buffer& result) {
  if (PyFloat_CheckExact(value.ptr())) {
    *static_cast<double*>(result.data) = PyFloat_AS_DOUBLE(value.ptr());
  } else if (PyBool_Check(value.ptr())) {
    *static_cast<bool*>(result.data) = value.ptr() == Py_True;
  } else {
    PyArray_ScalarAsCtype(value.ptr(), result.data);
  }
}

void ConvertAndStore(nb::handle returned, const Buffers& results, const Who& who,
                     DeferredDecrefScope& decrefs) {
  std::vector<DeclaredResult> declared;
  for (const Buffer& result : results) declared.push_back(DeclaredAs(result));
  const std::vector<nb::handle> arrays = ConvertResults(returned, declared, who, decrefs);
  for (size_t i = 0; i < arrays.size(); ++i) {
    // Checked again: converting and copying may let in other threads, which may hold this one.
    CheckArray(arrays[i], declared[i], i, who);
    CopyOut(arrays[i], results[i]);
  }
}

void StoreBytes(const void* data, size_t size, const Buffer& result) {
  ExpectToFillResult(result.data, size);
  if (size > 0) std::memcpy(result.data, data, size);
}

void CopyOut(nb::handle array, const Buffer& result) {
  PyArrayObject* source = AsArray(array);
  const Dims shape = DimsOf(source);
  for (size_t i = 0; result.sizes != nullptr && i < shape.size(); ++i) {
    if (result.sizes[i] != nullptr) *result.sizes[i] = static_cast<int32_t>(shape[i]);
  }
  const bool whole = AreSame(shape, result.dims);
  if (whole && PyArray_ISCARRAY_RO(source) && result.visible_dtype == result.dtype) {
    CopyAsDeclared(array, result);
    return;
  }
  if (IsEmpty(result.dims)) return;
  ExpectToFillResult(result.data, static_cast<size_t>(SizeInBytes(result)));
  // A copy: the code below may let other threads in, and the user may give the array another shape.
  const std::vector<int64_t> dims(shape.begin(), shape.end());
  if (!whole) {
    // Values beyond the true size are never read; zeros keep them the same from run to run.
    nb::object all = View(result, result.dims, NPY_ARRAY_WRITEABLE);
    std::memset(result.data, 0, PyArray_NBYTES(AsArray(all)));
    if (IsEmpty(dims)) return;
  }
  // NumPy handles strides, byte order and int4.
  nb::object view = View(result, dims, NPY_ARRAY_WRITEABLE);
  CopyInto(view, array);
}

}  // namespace hostcall
