// The Python objects that a piece of C++ makes while it runs code of the user's.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "gil.h"

namespace hostcall {

// Owns objects, and drops them after all else: what a `__del__` does is the user's code once more,
// and may meet the interpreter's end, when nothing else may be left to destroy. To be made right
// after a GilHold. Hidden like nanobind's types, in modules too whose symbols are visible.
class __attribute__((visibility("hidden"))) Keeper {
 public:
  Keeper() { kept_.reserve(8); }
  ~Keeper() {
    for (nanobind::object& object : kept_) {
      PyObject* dropped = object.release().ptr();
      UntilExit([dropped] { Py_XDECREF(dropped); });
    }
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  nanobind::handle Keep(nanobind::object object) {
    kept_.push_back(std::move(object));
    return kept_.back();
  }

  // What a function of Python's C API returned, which is null where it raised.
  nanobind::handle Keep(PyObject* returned) {
    if (returned == nullptr) throw nanobind::python_error();
    return Keep(nanobind::steal(returned));
  }

 private:
  std::vector<nanobind::object> kept_;
};

}  // namespace hostcall
