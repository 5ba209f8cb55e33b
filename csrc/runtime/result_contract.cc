#include "result_contract.h"

#include <utility>

#include "failure.h"
#include "gil.h"
#include "numpy.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

bool IsBounded(const DeclaredResult& declared, size_t dim) {
  return dim < declared.bounded.size() && declared.bounded[dim];
}

std::string ShapeString(const DeclaredResult& declared) {
  const Dims dims = declared.dims;
  std::string text = "(";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    if (IsBounded(declared, i)) text += "<=";
    text += dims[i] == DeclaredResult::kAnySize ? "None" : std::to_string(dims[i]);
  }
  return text + (dims.size() == 1 ? ",)" : ")");
}

bool ShapeFits(Dims dims, const DeclaredResult& declared) {
  if (declared.any_shape) return true;
  if (dims.size() != declared.dims.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = declared.dims[i];
    if (size == DeclaredResult::kAnySize) continue;
    if (IsBounded(declared, i) ? dims[i] > size : dims[i] != size) return false;
  }
  return true;
}

std::string Subject(size_t index, const std::string& who) {
  return std::to_string(index) + "-th value returned by " + who;
}

bool IsEmptyList(nb::handle value) {
  return nb::isinstance<nb::list>(value) && nb::len(value) == 0;
}

// Accepts NumPy's form of a lone None, too: stock TensorFlow counts it as no value at all.
bool IsNone(nb::handle value) {
  if (value.is_none()) return true;
  if (!PyArray_Check(value.ptr())) return false;
  PyArrayObject* array = AsArray(value);
  if (PyArray_TYPE(array) != NPY_OBJECT || PyArray_NDIM(array) != 0) return false;
  return Checked(PyArray_GETITEM(array, static_cast<char*>(PyArray_DATA(array)))).is_none();
}

// Returns the values for `count` results, as a tuple.
nb::object SplitResults(nb::handle returned, size_t count) {
  if (count == 1 && IsEmptyList(returned)) {
    return nb::make_tuple(returned);  // one empty value, rather than no value
  }
  if (nb::isinstance<nb::list>(returned) || nb::isinstance<nb::tuple>(returned)) {
    return Checked(PySequence_Tuple(returned.ptr()));
  }
  return IsNone(returned) ? nb::make_tuple() : nb::make_tuple(returned);
}

}  // namespace

nb::object ToArray(nb::handle value, const Dtype& expected, size_t index, const Who& who) {
  if (IsNone(value)) {
    // TensorFlow's class for this error.
    throw Failure(ffi::ErrorCode::kInternal,
                  "Unsupported object type NoneType: " + Subject(index, who()) +
                      " is None, but expects " + expected.name + ".");
  }
  // An empty list's own dtype would be float64, whatever the function means to return.
  nb::object wanted = IsEmptyList(value) ? expected.descr : nb::object();
  if (expected.convert.is_valid()) {
    return Checked(UntilExit([&] {
      return PyObject_CallFunctionObjArgs(expected.convert.ptr(), value.ptr(),
                                          wanted.is_valid() ? wanted.ptr() : Py_None, nullptr);
    }));
  }
  return Checked(UntilExit([&] {
    return PyArray_FromAny(value.ptr(), AsDescr(wanted.release()), 0, 0, NPY_ARRAY_ENSUREARRAY,
                           nullptr);
  }));
}

std::string CountMessage(const std::string& who, size_t returned, size_t declared) {
  return who + " returns " + std::to_string(returned) + " values, but expects to see " +
         std::to_string(declared) + " values.";
}

std::string ShapeMessage(const std::string& who, size_t index, const std::string& actual,
                         const std::string& declared) {
  return Subject(index, who) + " has shape " + actual + ", but its declared shape is " + declared +
         ". Correct the function or the declaration.";
}

void CheckShape(Dims dims, const DeclaredResult& declared, size_t index, const Who& who) {
  if (ShapeFits(dims, declared)) return;
  throw Failure::InvalidArgument(
      ShapeMessage(who(), index, ShapeString({nullptr, dims}), ShapeString(declared)));
}

void CheckArray(nb::handle array, const DeclaredResult& declared, size_t index, const Who& who) {
  if (!HasDtype(array, *declared.dtype)) {
    throw Failure::InvalidArgument(Subject(index, who()) + " is " + NameOfDtype(array) +
                                   ", but expects " + declared.dtype->name + ".");
  }
  CheckShape(DimsOf(AsArray(array)), declared, index, who);
}

RecycledVector<nb::handle> ConvertResults(nb::handle returned,
                                          const std::vector<DeclaredResult>& declared,
                                          const Who& who, DeferredDecrefScope& decrefs) {
  nb::handle values = decrefs.Defer(SplitResults(returned, declared.size()));
  if (nb::len(values) != declared.size()) {
    throw Failure::InvalidArgument(CountMessage(who(), nb::len(values), declared.size()));
  }
  RecycledVector<nb::handle> arrays;
  arrays.reserve(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    nb::handle value = PyTuple_GET_ITEM(values.ptr(), static_cast<Py_ssize_t>(i));
    arrays.push_back(decrefs.Defer(ToArray(value, *declared[i].dtype, i, who)));
  }
  for (size_t i = 0; i < arrays.size(); ++i) CheckArray(arrays[i], declared[i], i, who);
  return arrays;
}

}  // namespace hostcall
