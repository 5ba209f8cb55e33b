#include "results.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "array_memory.h"
#include "call.h"
#include "host_api.h"
#include "numpy.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// True if a size is 0: XLA has no address then, and NumPy takes null for "allocate yourself".
bool IsEmpty(Dims dims) { return std::find(dims.begin(), dims.end(), 0) != dims.end(); }

void StoreBytes(const void* data, size_t size, const Buffer& result) {
  ExpectToFillResult(result.data, size);
  if (size > 0) std::memcpy(result.data, data, size);
}

// Returns whether a value is an array that CheckArray would pass, and that can be copied as it lies
// in memory. Runs no user code.
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

// Returns whether a value is a lone one that is not an array, but a NumPy scalar, a float or a
// bool, as declared. Runs no user code.
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

struct ReleaseTensor {
  void operator()(void* resolved) const { Host().tensors.release(resolved); }
};

// A returned value that may be copied as it lies in memory: an array, or a tensor.
class Value {
 public:
  // Waits for the values of a tensor, which lets other threads in.
  Value(nb::handle value, const Buffer& result, bool tensors) : result_(result), value_(value) {
    if (tensors && result.sizes == nullptr && result.visible_dtype == result.dtype) {
      tensor_.reset(UntilExit([&] { return Host().tensors.resolve(value.ptr()); }));
    }
  }

  // Returns whether it is as declared. No user code may run until `Store`: it may hold the array.
  bool Fits() const {
    if (tensor_ == nullptr) {
      return IsAsDeclared(value_, result_) || IsScalarAsDeclared(value_, result_);
    }
    return Host().tensors.matches(tensor_.get(), static_cast<int>(result_.dtype),
                                  result_.dims.begin(), static_cast<int>(result_.dims.size()));
  }

  void Store() const {
    if (tensor_ != nullptr) {
      StoreBytes(Host().tensors.data(tensor_.get()), static_cast<size_t>(SizeInBytes(result_)),
                 result_);
    } else if (IsScalarAsDeclared(value_, result_)) {
      CopyScalarOut(value_, result_);
    } else {
      CopyAsDeclared(value_, result_);
    }
  }

 private:
  const Buffer& result_;
  nb::handle value_;
  std::unique_ptr<void, ReleaseTensor> tensor_;
};

// Stores values in the common case that all are as declared. Returns false, and stores none, if one
// may have to be converted.
bool StoreAsDeclared(nb::handle returned, const HostCall& call, DeferredDecrefScope& decrefs) {
  const bool tensors = call.convention().takes_tensors;
  if (!PyList_CheckExact(returned.ptr()) && !PyTuple_CheckExact(returned.ptr())) {
    if (call.results.size() != 1) return false;
    const Value value(returned, call.results[0], tensors);
    if (!value.Fits()) return false;
    const ProgramMemory memory(call.abandonment);
    value.Store();
    return true;
  }
  const auto count = static_cast<Py_ssize_t>(call.results.size());
  if (PySequence_Fast_GET_SIZE(returned.ptr()) != count) return false;
  std::vector<Value> values;
  values.reserve(call.results.size());
  for (Py_ssize_t i = 0; i < count; ++i) {
    // Checked each time: another thread may change a list.
    if (PySequence_Fast_GET_SIZE(returned.ptr()) != count) return false;
    nb::handle item = decrefs.Defer(nb::borrow(PySequence_Fast_GET_ITEM(returned.ptr(), i)));
    values.emplace_back(item, call.results[static_cast<size_t>(i)], tensors);
  }
  for (const Value& value : values) {
    if (!value.Fits()) return false;
  }
  const ProgramMemory memory(call.abandonment);
  for (const Value& value : values) value.Store();
  return true;
}

}  // namespace

DeclaredResult DeclaredAs(const Buffer& result) {
  DeclaredResult declared{&DtypeOf(result.visible_dtype), result.dims};
  if (result.sizes == nullptr) return declared;
  for (size_t i = 0; i < result.dims.size(); ++i) {
    declared.bounded.push_back(result.sizes[i] != nullptr);
  }
  return declared;
}

void StoreResults(nb::handle returned, const HostCall& call, nb::handle target, const Who& who,
                  DeferredDecrefScope& decrefs) {
  static PyObject* const to_arrays = PyUnicode_InternFromString("to_arrays");
  if (call.convention().on_device) {
    // Without a lock: no call that lends arrays of a device is given up.
    if (call.device != nullptr) return StoreOnDevice(returned, call, who, decrefs);
    returned = WithArraysOfHost(returned, who, decrefs);
  }
  if (StoreAsDeclared(returned, call, decrefs)) return;
  nb::handle convert = decrefs.Attribute(target, to_arrays);
  if (!convert.is_none()) returned = decrefs.Call(convert, returned);
  ConvertAndStore(returned, call.results, call.abandonment, who, decrefs);
}

void ConvertAndStore(nb::handle returned, const Buffers& results, Abandonment* abandonment,
                     const Who& who, DeferredDecrefScope& decrefs) {
  std::vector<DeclaredResult> declared;
  for (const Buffer& result : results) declared.push_back(DeclaredAs(result));
  const std::vector<nb::handle> arrays = ConvertResults(returned, declared, who, decrefs);
  const ProgramMemory memory(abandonment);
  for (size_t i = 0; i < arrays.size(); ++i) {
    // Checked again: converting and copying may let in other threads, which may hold this one.
    CheckArray(arrays[i], declared[i], {i, declared.size()}, who);
    CopyOut(arrays[i], results[i]);
  }
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
