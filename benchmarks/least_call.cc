// The least that calls a Python function from a compiled program: an array of its own, the call,
// and a copy of the result, with no check and no care for errors.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <cstring>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static PyObject* function = nullptr;

// Sets the function that is called from now on, with Python's lock. Returns 0, or -1 on an error.
extern "C" int set_function(PyObject* value) {
  if (_import_array() < 0) return -1;
  Py_XSETREF(function, Py_NewRef(value));
  return 0;
}

static ffi::Error Handle(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  const PyGILState_STATE state = PyGILState_Ensure();
  npy_intp count = static_cast<npy_intp>(x.element_count());
  PyObject* array = PyArray_SimpleNew(1, &count, NPY_FLOAT32);
  std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), x.typed_data(),
              x.size_bytes());
  PyObject* result = PyObject_CallOneArg(function, array);
  const void* data = PyArray_DATA(reinterpret_cast<PyArrayObject*>(result));
  std::memcpy(y->typed_data(), data, y->size_bytes());
  Py_DECREF(result);
  Py_DECREF(array);
  PyGILState_Release(state);
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    least_call, Handle, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
