// The Python objects that a piece of C++ makes while it runs code of the user's.
#pragma once

#include <nanobind/nanobind.h>

#include "gil.h"
#include "small_vector.h"

namespace hostcall {

// Owns objects, and drops them after all else: what a `__del__` does is the user's code once more,
// and may meet the interpreter's end, when nothing else may be left to destroy. To be made right
// after a GilHold. Hidden like nanobind's types, in modules too whose symbols are visible.
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

  // What a function of Python's C API returned, which is null where it raised.
  nanobind::handle Defer(PyObject* returned) {
    if (returned == nullptr) throw nanobind::python_error();
    return Defer(nanobind::steal(returned));
  }

 private:
  static void Drop(PyObject* object) {
    UntilExit([object] { Py_XDECREF(object); });
  }

  SmallVector<PyObject*, 12> objects_;
};

}  // namespace hostcall
