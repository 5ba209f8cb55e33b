// Python's garbage collector.
#pragma once

#include <Python.h>

#include "gil.h"

namespace hostcall {

// Not PyGC_Collect, which does nothing where the user has switched the collector off. Wants the
// GIL, and may run code of the user's.
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
