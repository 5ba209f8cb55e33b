#include "annotations.h"

#include "module.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

void Annotate(const nb::object& type) {
  // Leaked: calls on other threads may just be using it, and there is one for each process.
  annotation = type.is_none() ? nullptr : nb::object(type).release().ptr();
}

}  // namespace

void Annotated::Begin(PyObject* type, const std::string& label, DeferredDecrefScope& decrefs) {
  try {
    const auto size = static_cast<Py_ssize_t>(label.size());
    nb::handle name = decrefs.Defer(PyUnicode_DecodeUTF8(label.data(), size, "replace"));
    nb::handle event = decrefs.Call(type, name);
    decrefs.Call(
        decrefs.Attribute(event, decrefs.Defer(PyUnicode_InternFromString("__enter__")).ptr()));
    event_ = event;
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(type);
  }
}

void Annotated::End() {
  PyObject* const ended = UntilExit([this] {
    return PyObject_CallMethod(event_.ptr(), "__exit__", "OOO", Py_None, Py_None, Py_None);
  });
  if (ended == nullptr) PyErr_WriteUnraisable(event_.ptr());
  Py_XDECREF(ended);
}

void DefineAnnotations(nb::module_& m) {
  m.def("annotate", &Annotate, nb::arg("type").none(),
        "Set the class of the events that calls are: contexts, made of a callback's label. With "
        "None, calls are not events.");
}

}  // namespace hostcall
