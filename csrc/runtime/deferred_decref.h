// Python objects that C++ code makes while it runs user code.
#pragma once

#include <nanobind/nanobind.h>

#include "gil.h"
#include "small_vector.h"

namespace hostcall {

// The owner of Python objects, which it drops after everything else: a `__del__` is user code too,
// and may meet the interpreter's end, when nothing else may be left to destroy. Make it right after
// a GilHold. Hidden like nanobind's types, also in modules with visible symbols.
class __attribute__((visibility("hidden"))) DeferredDecrefScope {
 public:
  DeferredDecrefScope() = default;
  ~DeferredDecrefScope() {
    for (PyObject* object : objects_) Drop(object);
  }
  DeferredDecrefScope(const DeferredDecrefScope&) = delete;
  DeferredDecrefScope& operator=(const DeferredDecrefScope&) = delete;

  nanobind::handle Defer(nanobind::object object) {
    PyObject* kept = object.release().ptr();
    objects_.push_back(kept);
    return kept;
  }

  // Takes the result of a function of Python's C API, which is null if the function raised.
  nanobind::handle Defer(PyObject* returned) {
    if (returned == nullptr) throw nanobind::python_error();
    return Defer(nanobind::steal(returned));
  }

  // Returns an attribute, whose getter may be user code.
  nanobind::handle Attribute(nanobind::handle object, PyObject* name) {
    return Defer(UntilExit([&] { return PyObject_GetAttr(object.ptr(), name); }));
  }

  template <typename... Arguments>
  nanobind::handle Call(nanobind::handle function, const Arguments&... arguments) {
    return Defer(UntilExit(
        [&] { return PyObject_CallFunctionObjArgs(function.ptr(), arguments.ptr()..., nullptr); }));
  }

 private:
  static void Drop(PyObject* object) {
    UntilExit([object] { Py_XDECREF(object); });
  }

  SmallVector<PyObject*, 12> objects_;
};

}  // namespace hostcall
