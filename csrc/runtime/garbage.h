// Python's garbage collector.
#pragma once

#include <Python.h>

#include "gil.h"

namespace hostcall {

// Collects garbage. PyGC_Collect does nothing if the user has switched the collector off. Needs the
// GIL, and may run user code.
inline void CollectGarbage() {
  UntilExit([] {
    PyObject* gc = PyImport_ImportModule("gc");
    PyObject* count = gc == nullptr ? nullptr : PyObject_CallMethod(gc, "collect", nullptr);
    if (count == nullptr) PyErr_Clear();
    Py_XDECREF(count);
    Py_XDECREF(gc);
  });
}

}  // namespace hostcall
