// Calls as events of a profiler that only Python reaches, such as JAX's.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <atomic>
#include <string>

#include "gil.h"

namespace hostcall {

// The class of the events, or null while calls are not events. It makes a context out of a label.
inline std::atomic<PyObject*> annotation{nullptr};

// The event of a call, from here to the end of the scope. Needs the GIL. Never throws: a call does
// not fail because its event does.
class Annotated {
 public:
  Annotated(const std::string& label, DeferredDecrefScope& decrefs) {
    PyObject* const type = annotation.load(std::memory_order_relaxed);
    if (type != nullptr) Begin(type, label, decrefs);
  }
  ~Annotated() {
    if (event_.is_valid()) End();
  }
  Annotated(const Annotated&) = delete;
  Annotated& operator=(const Annotated&) = delete;

 private:
  void Begin(PyObject* type, const std::string& label, DeferredDecrefScope& decrefs);
  void End();

  nanobind::handle event_;
};

}  // namespace hostcall
