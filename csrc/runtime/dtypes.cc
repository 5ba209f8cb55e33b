#ifndef HOSTCALL_DEFINES_NUMPY
#define HOSTCALL_DEFINES_NUMPY
#endif
#include <utility>

#include "failure.h"
#include "gil.h"
#include "numpy.h"
#include "text.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Returns the first object in an array that is not a string to TensorFlow, or nothing.
nb::object FirstForeign(nb::handle array) {
  for (nb::handle item : nb::object(array.attr("flat"))) {
    if (!PyBytes_Check(item.ptr()) && !PyUnicode_Check(item.ptr())) return nb::borrow(item);
  }
  return {};
}

nb::object Repr(nb::handle object) {
  return Checked(UntilExit([&] { return PyObject_Repr(object.ptr()); }));
}

}  // namespace

void ImportNumpy() {
  if (_import_array() < 0) throw nb::python_error();
}

void SetDtype(int code, nb::object dtype, std::string name) {
  PyArray_Descr* descr = nullptr;
  if (!PyArray_DescrConverter(dtype.ptr(), &descr)) throw nb::python_error();
  const auto index = static_cast<size_t>(code);
  if (index >= dtypes->size()) dtypes->resize(index + 1);
  (*dtypes)[index] = Dtype{nb::steal(reinterpret_cast<PyObject*>(descr)), std::move(name), {}};
}

Failure NoDtype(ffi::DataType code) {
  return Failure(ffi::ErrorCode::kUnimplemented,
                 "XLA's element type number " + std::to_string(static_cast<int>(code)) +
                     " has no NumPy dtype, so that no callback can take or return it. Cast the "
                     "tensor to another dtype around the callback.");
}

bool HasDtype(nb::handle array, const Dtype& dtype) {
  if (dtype.convert.is_valid()) return NameOfDtype(array) == dtype.name;
  PyArray_Descr* actual = PyArray_DESCR(AsArray(array));
  PyArray_Descr* wanted = AsDescr(dtype.descr);
  if (!PyArray_EquivTypenums(actual->type_num, wanted->type_num)) return false;
  // All dtypes with fields share one number.
  return wanted->type_num != NPY_VOID || PyArray_EquivTypes(actual, wanted);
}

// Throws an internal error for a dtype that TensorFlow cannot name, as its own script ops do.
std::string NameOfDtype(nb::handle array) {
  for (const Dtype& dtype : *dtypes) {
    if (dtype.descr.is_valid() && HasDtype(array, dtype)) return dtype.name;
  }
  const int type = PyArray_TYPE(AsArray(array));
  if (type == NPY_STRING || type == NPY_UNICODE) return "string";
  if (type == NPY_OBJECT) {
    const nb::object foreign = FirstForeign(array);
    if (!foreign.is_valid()) return "string";
    throw Failure(ffi::ErrorCode::kInternal, std::string("Unsupported object type ") +
                                                 Py_TYPE(foreign.ptr())->tp_name +
                                                 " in the array " + Text(Repr(array)) + ".");
  }
  throw Failure(ffi::ErrorCode::kInternal,
                "Unsupported numpy data type " +
                    Text(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(AsArray(array))))) +
                    " of the array " + Text(Repr(array)) + ".");
}

}  // namespace hostcall
