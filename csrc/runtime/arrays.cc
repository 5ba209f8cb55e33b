// The one file that uses NumPy's C API.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION

#include "arrays.h"

#include <numpy/arrayobject.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "failure.h"
#include "gil.h"
#include "lending.h"
#include "text.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

struct Dtype {
  nb::object descr;
  std::string name;
};

// By their codes. Leaked: it holds Python objects, which must not be released after the interpreter
// is gone.
std::vector<Dtype>& Dtypes() {
  static auto* dtypes = new std::vector<Dtype>();
  return *dtypes;
}

const Dtype& DtypeOf(ffi::DataType code) {
  const auto index = static_cast<size_t>(code);
  if (index >= Dtypes().size() || !Dtypes()[index].descr.is_valid()) {
    throw Failure(ffi::ErrorCode::kUnimplemented,
                  "XLA's element type number " + std::to_string(static_cast<int>(code)) +
                      " has no NumPy dtype, so that no callback can take or return it. Cast the "
                      "tensor to another dtype around the callback.");
  }
  return Dtypes()[index];
}

nb::object Checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

PyArrayObject* AsArray(nb::handle array) { return reinterpret_cast<PyArrayObject*>(array.ptr()); }

bool HoldsStrings(nb::handle array) {
  const int type = PyArray_TYPE(AsArray(array));
  if (type == NPY_STRING || type == NPY_UNICODE) return true;
  if (type != NPY_OBJECT) return false;
  for (nb::handle item : nb::object(array.attr("flat"))) {
    if (!PyBytes_Check(item.ptr()) && !PyUnicode_Check(item.ptr())) return false;
  }
  return true;
}

nb::object Repr(nb::handle object) {
  return Checked(UntilExit([&] { return PyObject_Repr(object.ptr()); }));
}

// The dtype's name as TensorFlow has it. What TensorFlow has no name for is an internal error in
// its own script ops, too.
std::string NameOfDtype(nb::handle array) {
  PyArray_Descr* descr = PyArray_DESCR(AsArray(array));
  for (const Dtype& dtype : Dtypes()) {
    if (dtype.descr.is_valid() &&
        PyArray_EquivTypenums(reinterpret_cast<PyArray_Descr*>(dtype.descr.ptr())->type_num,
                              descr->type_num)) {
      return dtype.name;
    }
  }
  if (HoldsStrings(array)) return "string";
  throw Failure(ffi::ErrorCode::kInternal,
                "Unsupported numpy data type " +
                    Text(nb::borrow(reinterpret_cast<PyObject*>(descr))) + " of the array " +
                    Text(Repr(array)));
}

// An array over `buffer`'s memory: no copy, and to be dropped before the call ends. `true_dims` may
// be smaller than what is allocated, which the strides then step over.
nb::object View(const Buffer& buffer, Dims true_dims, int flags) {
  nb::object descr = DtypeOf(buffer.dtype).descr;
  std::vector<npy_intp> shape(true_dims.begin(), true_dims.end());
  std::vector<npy_intp> strides(shape.size());
  npy_intp stride = PyDataType_ELSIZE(reinterpret_cast<PyArray_Descr*>(descr.ptr()));
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= buffer.dims[i];
  }
  return Checked(PyArray_NewFromDescr(
      &PyArray_Type, reinterpret_cast<PyArray_Descr*>(descr.release().ptr()),
      static_cast<int>(shape.size()), shape.data(), strides.data(), buffer.data, flags, nullptr));
}

const LenderApi* lender_api = nullptr;

// Copying fewer bytes than this costs less than keeping the memory.
constexpr int64_t kWorthLending = 4096;

void EndHold(PyObject* capsule) { lender_api->release(PyCapsule_GetPointer(capsule, nullptr)); }

// A view that keeps the memory that it lies in; a null object where that cannot be.
nb::object Lend(const Buffer& buffer, Dims true_dims, int flags) {
  const int64_t size = SizeInBytes(buffer);
  if (lender_api == nullptr || size < kWorthLending || buffer.visible_dtype != buffer.dtype) {
    return nb::object();
  }
  void* hold = lender_api->hold(buffer.data, static_cast<size_t>(size));
  if (hold == nullptr) return nb::object();
  nb::object owner = nb::steal(PyCapsule_New(hold, nullptr, &EndHold));
  if (!owner.is_valid()) {
    lender_api->release(hold);
    throw nb::python_error();
  }
  nb::object view = View(buffer, true_dims, flags);
  if (PyArray_SetBaseObject(AsArray(view), owner.release().ptr()) < 0) throw nb::python_error();
  return view;
}

// NumPy releases the GIL for larger copies.
void CopyInto(nb::handle to, nb::handle from) {
  const int failed = UntilExit([&] { return PyArray_CopyInto(AsArray(to), AsArray(from)); });
  if (failed < 0) throw nb::python_error();
}

// XLA has no address for an empty buffer, and NumPy takes a null one for "allocate yourself".
bool IsEmpty(Dims dims) { return std::find(dims.begin(), dims.end(), 0) != dims.end(); }

std::string ShapeString(Dims dims, const std::vector<int32_t*>& sizes = {}) {
  std::string text = "(";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    if (i < sizes.size() && sizes[i] != nullptr) text += "<=";
    text += std::to_string(dims[i]);
  }
  return text + (dims.size() == 1 ? ",)" : ")");
}

Dims DimsOf(PyArrayObject* array) {
  return Dims(PyArray_DIMS(array), static_cast<size_t>(PyArray_NDIM(array)));
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

void ImportNumpy() {
  if (_import_array() < 0) throw nb::python_error();
}

void SetDtype(int code, nb::object dtype, std::string name) {
  PyArray_Descr* descr = nullptr;
  if (!PyArray_DescrConverter(dtype.ptr(), &descr)) throw nb::python_error();
  const auto index = static_cast<size_t>(code);
  if (index >= Dtypes().size()) Dtypes().resize(index + 1);
  Dtypes()[index] = Dtype{nb::steal(reinterpret_cast<PyObject*>(descr)), std::move(name)};
}

nb::object ToNumpy(const Buffer& buffer) {
  const Dims dims = buffer.true_dims.empty() ? buffer.dims : Dims(buffer.true_dims);
  nb::object descr = DtypeOf(buffer.dtype).descr;
  nb::object array = Checked(
      PyArray_Empty(static_cast<int>(dims.size()), const_cast<npy_intp*>(dims.begin()),
                    reinterpret_cast<PyArray_Descr*>(descr.release().ptr()), /*is_f_order=*/0));
  if (!IsEmpty(dims)) {
    if (buffer.true_dims.empty()) {
      std::memcpy(PyArray_DATA(AsArray(array)), buffer.data, PyArray_NBYTES(AsArray(array)));
    } else {
      nb::object view = View(buffer, dims, /*flags=*/0);
      CopyInto(array, view);
    }
  }
  if (buffer.visible_dtype != buffer.dtype) {
    nb::object visible = DtypeOf(buffer.visible_dtype).descr;
    array = Checked(UntilExit([&] {
      return PyArray_CastToType(AsArray(array),
                                reinterpret_cast<PyArray_Descr*>(visible.release().ptr()), 0);
    }));
  }
  return dims.size() == 0
             ? Checked(PyArray_Return(reinterpret_cast<PyArrayObject*>(array.release().ptr())))
             : array;
}

void SetLenderApi(const LenderApi* api) { lender_api = api; }

nb::object Borrow(const Buffer& buffer, bool lend) {
  const Dims dims = buffer.true_dims.empty() ? buffer.dims : Dims(buffer.true_dims);
  if (lend) {
    if (nb::object view = Lend(buffer, dims, /*flags=*/0); view.is_valid()) return view;
  }
  nb::object copy = ToNumpy(buffer);
  PyArray_CLEARFLAGS(AsArray(copy), NPY_ARRAY_WRITEABLE);
  return copy;
}

OutArray MakeOutArray(const Buffer& result, bool lend) {
  if (lend) {
    nb::object view = Lend(result, result.dims, NPY_ARRAY_WRITEABLE);
    if (view.is_valid()) return {std::move(view), true};
  }
  nb::object descr = DtypeOf(result.visible_dtype).descr;
  nb::object array = Checked(PyArray_Empty(
      static_cast<int>(result.dims.size()), const_cast<npy_intp*>(result.dims.begin()),
      reinterpret_cast<PyArray_Descr*>(descr.release().ptr()), /*is_f_order=*/0));
  return {std::move(array), false};
}

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
                  Subject(index, who) + " is None, but expects " + expected.name + ".");
  }
  PyArray_Descr* wanted = nullptr;
  if (IsEmptyList(value)) {
    // Its own dtype would be float64, whatever the function means to return.
    wanted = reinterpret_cast<PyArray_Descr*>(nb::object(expected.descr).release().ptr());
  }
  return Checked(UntilExit([&] { return PyArray_FromAny(value.ptr(), wanted, 0, 0, 0, nullptr); }));
}

void CheckArray(nb::handle array, const Buffer& result, size_t index, const Who& who) {
  const Dtype& expected = DtypeOf(result.visible_dtype);
  auto* expected_descr = reinterpret_cast<PyArray_Descr*>(expected.descr.ptr());
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
  auto* expected = reinterpret_cast<PyArray_Descr*>(DtypeOf(result.visible_dtype).descr.ptr());
  return PyArray_TYPE(AsArray(value)) == expected->type_num &&
         result.visible_dtype == result.dtype && PyArray_ISCARRAY_RO(AsArray(value)) &&
         DimsOf(AsArray(value)) == result.dims;
}

int64_t SizeInBytes(const Buffer& buffer) {
  int64_t size =
      PyDataType_ELSIZE(reinterpret_cast<PyArray_Descr*>(DtypeOf(buffer.dtype).descr.ptr()));
  for (const int64_t dim : buffer.dims) size *= dim;
  return size;
}

void StoreBytes(const void* data, const Buffer& result) {
  const auto size = static_cast<size_t>(SizeInBytes(result));
  if (size > 0) std::memcpy(result.data, data, size);
}

void CopyOut(nb::handle array, const Buffer& result) {
  PyArrayObject* source = AsArray(array);
  const Dims shape = DimsOf(source);
  for (size_t i = 0; i < result.sizes.size(); ++i) {
    if (result.sizes[i] != nullptr) *result.sizes[i] = static_cast<int32_t>(shape[i]);
  }
  if (IsEmpty(result.dims)) return;
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
