// The Python objects that a piece of C++ makes while it runs code of the user's.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <utility>

#include "gil.h"
#include "recycled.h"

namespace hostcall {

// Owns objects, and drops them after all else: what a `__del__` does is the user's code once more,
// and may meet the interpreter's end, when nothing else may be left to destroy. To be made right
// after a GilHold. Hidden like nanobind's types, in modules too whose symbols are visible.
class __attribute__((visibility("hidden"))) DeferredDecrefScope {
 public:
  DeferredDecrefScope() = default;
  ~DeferredDecrefScope() {
    for (size_t i = 0; i < count_; ++i) Drop(few_[i]);
    for (PyObject* object : more_) Drop(object);
  }
  DeferredDecrefScope(const DeferredDecrefScope&) = delete;
  DeferredDecrefScope& operator=(const DeferredDecrefScope&) = delete;

  nanobind::handle Defer(nanobind::object object) {
    PyObject* kept = object.release().ptr();
    if (count_ < few_.size()) {
      few_[count_++] = kept;
    } else {
      if (more_.empty()) more_.reserve(few_.size());
      more_.push_back(kept);
    }
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

  std::array<PyObject*, 12> few_;  // most calls need no memory for it
  size_t count_ = 0;
  RecycledVector<PyObject*> more_;
};

}  // namespace hostcall
