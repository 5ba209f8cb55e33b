#include "results.h"

#include <cstring>
#include <utility>

#include "failure.h"
#include "gil.h"
#include "numpy.h"
#include "pages.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

std::string ShapeString(Dims dims, const std::vector<int32_t*>& sizes = {}) {
  std::string text = "(";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    if (i < sizes.size() && sizes[i] != nullptr) text += "<=";
    text += std::to_string(dims[i]);
  }
  return text + (dims.size() == 1 ? ",)" : ")");
}

bool ShapeFits(Dims dims, const Buffer& result) {
  if (dims.size() != result.dims.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool bounded = i < result.sizes.size() && result.sizes[i] != nullptr;
    if (bounded ? dims[i] > result.dims[i] : dims[i] != result.dims[i]) return false;
  }
  return true;
}

std::string Subject(size_t index, const Who& who) {
  return std::to_string(index) + "-th value returned by " + who();
}

bool IsEmptyList(nb::handle value) {
  return nb::isinstance<nb::list>(value) && nb::len(value) == 0;
}

// What NumPy makes of a lone None: stock TensorFlow counts it as no value at all.
bool IsNone(nb::handle value) {
  if (value.is_none()) return true;
  if (!PyArray_Check(value.ptr())) return false;
  PyArrayObject* array = AsArray(value);
  if (PyArray_TYPE(array) != NPY_OBJECT || PyArray_NDIM(array) != 0) return false;
  return Checked(PyArray_GETITEM(array, static_cast<char*>(PyArray_DATA(array)))).is_none();
}

}  // namespace

nb::object SplitResults(nb::handle returned, size_t count) {
  if (count == 1 && IsEmptyList(returned)) {
    return nb::make_tuple(returned);  // one empty value, rather than no value
  }
  if (nb::isinstance<nb::list>(returned) || nb::isinstance<nb::tuple>(returned)) {
    return Checked(PySequence_Tuple(returned.ptr()));
  }
  return IsNone(returned) ? nb::make_tuple() : nb::make_tuple(returned);
}

void CheckCount(size_t returned, size_t count, const Who& who) {
  if (returned == count) return;
  throw Failure::InvalidArgument(who() + " returns " + std::to_string(returned) +
                                 " values, but expects to see " + std::to_string(count) +
                                 " values.");
}

nb::object ToArray(nb::handle value, const Buffer& result, size_t index, const Who& who) {
  const Dtype& expected = DtypeOf(result.visible_dtype);
  if (IsNone(value)) {
    // The class that TensorFlow has for it.
    throw Failure(ffi::ErrorCode::kInternal,
                  "Unsupported object type NoneType: " + Subject(index, who) +
                      " is None, but expects " + expected.name + ".");
  }
  PyArray_Descr* wanted = nullptr;
  if (IsEmptyList(value)) {
    // Its own dtype would be float64, whatever the function means to return.
    wanted = AsDescr(nb::object(expected.descr).release());
  }
  return Checked(UntilExit([&] { return PyArray_FromAny(value.ptr(), wanted, 0, 0, 0, nullptr); }));
}

void CheckArray(nb::handle array, const Buffer& result, size_t index, const Who& who) {
  const Dtype& expected = DtypeOf(result.visible_dtype);
  auto* expected_descr = AsDescr(expected.descr);
  if (!PyArray_EquivTypenums(PyArray_TYPE(AsArray(array)), expected_descr->type_num)) {
    throw Failure::InvalidArgument(Subject(index, who) + " is " + NameOfDtype(array) +
                                   ", but expects " + expected.name + ".");
  }
  const Dims dims = DimsOf(AsArray(array));
  if (!ShapeFits(dims, result)) {
    throw Failure::InvalidArgument(
        Subject(index, who) + " has shape " + ShapeString(dims) + ", but its declared shape is " +
        ShapeString(result.dims, result.sizes) +
        ". XLA compiled the program for the declared shape: correct the function or the "
        "declaration.");
  }
}

bool IsAsDeclared(nb::handle value, const Buffer& result) {
  if (!PyArray_CheckExact(value.ptr()) || !result.sizes.empty()) return false;
  auto* expected = AsDescr(DtypeOf(result.visible_dtype).descr);
  return PyArray_TYPE(AsArray(value)) == expected->type_num &&
         result.visible_dtype == result.dtype && PyArray_ISCARRAY_RO(AsArray(value)) &&
         DimsOf(AsArray(value)) == result.dims;
}

void StoreBytes(const void* data, const Buffer& result) {
  const auto size = static_cast<size_t>(SizeInBytes(result));
  ExpectToFill(result.data, size);
  if (size > 0) std::memcpy(result.data, data, size);
}

void CopyOut(nb::handle array, const Buffer& result) {
  PyArrayObject* source = AsArray(array);
  const Dims shape = DimsOf(source);
  for (size_t i = 0; i < result.sizes.size(); ++i) {
    if (result.sizes[i] != nullptr) *result.sizes[i] = static_cast<int32_t>(shape[i]);
  }
  if (IsEmpty(result.dims)) return;
  ExpectToFill(result.data, static_cast<size_t>(SizeInBytes(result)));
  const bool whole = shape == result.dims;
  if (whole && PyArray_ISCARRAY_RO(source) && result.visible_dtype == result.dtype) {
    std::memcpy(result.data, PyArray_DATA(source), PyArray_NBYTES(source));
    return;
  }
  // A copy: what follows may let other threads in, and the user give the array another shape.
  const std::vector<int64_t> dims(shape.begin(), shape.end());
  if (!whole) {
    // What lies beyond the true size is never read; zeros keep it the same from run to run.
    nb::object all = View(result, result.dims, NPY_ARRAY_WRITEABLE);
    std::memset(result.data, 0, PyArray_NBYTES(AsArray(all)));
    if (IsEmpty(dims)) return;
  }
  // Strides, byte order and int4 are NumPy's business.
  nb::object view = View(result, dims, NPY_ARRAY_WRITEABLE);
  CopyInto(view, array);
}

}  // namespace hostcall
