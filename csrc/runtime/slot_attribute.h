// An attribute of Python objects, read at each call.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <cstddef>

namespace hostcall {

// A cached look-up of an attribute. It reads the value from the object's slot where the class has
// one, as with `__slots__`: Python's look-up takes ten times as long. All members need the GIL.
class SlotAttribute {
 public:
  // Leaks the name, like everything that holds Python objects.
  explicit SlotAttribute(const char* name) : name_(PyUnicode_InternFromString(name)) {}
  SlotAttribute(const SlotAttribute&) = delete;
  SlotAttribute& operator=(const SlotAttribute&) = delete;

  // Returns a new reference, or null if Python raised. May run user code.
  PyObject* Of(PyObject* object) {
    if (Py_TYPE(object) != type_) Learn(Py_TYPE(object));
    if (offset_ > 0) {
      const char* slot = reinterpret_cast<const char*>(object) + offset_;
      if (PyObject* value = *reinterpret_cast<PyObject* const*>(slot)) return Py_NewRef(value);
    }
    return PyObject_GetAttr(object, name_);
  }

 private:
  // Remembers one class only: all targets are of the same class.
  void Learn(PyTypeObject* type) {
    Py_INCREF(type);  // so that no other class gets its address
    Py_XDECREF(type_);
    type_ = type;
    offset_ = 0;
    if (type->tp_getattro != &PyObject_GenericGetAttr) return;
    PyObject* descriptor = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name_);
    if (descriptor == nullptr) return PyErr_Clear();
    if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
      const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
      if (member->type == T_OBJECT_EX) offset_ = member->offset;
    }
    Py_DECREF(descriptor);
  }

  PyObject* const name_;
  PyTypeObject* type_ = nullptr;
  Py_ssize_t offset_ = 0;  // 0 without a slot
};

}  // namespace hostcall
