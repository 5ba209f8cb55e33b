#include "registry.h"

#include <structmember.h>

#include <utility>

#include "gil.h"
#include "text.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

std::string DuplicateName(const std::string& name, const nb::object& owner) {
  return "A callback named '" + name + "' is registered already: " + Text(nb::repr(owner)) +
         ". A name stands for one callback in the whole process, because programs and saved "
         "models find their callback by it. Give one of the two another name, or drop every "
         "graph that uses the old one first.";
}

// Leaked like all that holds Python objects.
PyObject* HostFunctionName() {
  static PyObject* const name = PyUnicode_InternFromString("host_function");
  return name;
}

// Returns the offset of the function in targets of a type, or 0 if they have no slot for it. Read
// there, it costs a call ten times less than by its name.
Py_ssize_t SlotIn(PyTypeObject* type) {
  if (type->tp_getattro != &PyObject_GenericGetAttr) return 0;
  const nb::object slot = nb::getattr(nb::handle(type), HostFunctionName(), nb::none());
  if (!Py_IS_TYPE(slot.ptr(), &PyMemberDescr_Type)) return 0;
  const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(slot.ptr())->d_member;
  return member->type == T_OBJECT_EX ? member->offset : 0;
}

}  // namespace

PyObject* Callback::HostFunction(nb::handle target) const {
  if (slot_ > 0) {
    const char* slot = reinterpret_cast<const char*>(target.ptr()) + slot_;
    if (PyObject* function = *reinterpret_cast<PyObject* const*>(slot)) return Py_NewRef(function);
  }
  return UntilExit([&] { return PyObject_GetAttr(target.ptr(), HostFunctionName()); });
}

nb::object Callback::Target() const {
  if (!weak_target_.is_valid()) return nb::object();
  PyObject* target = PyWeakref_GetObject(weak_target_.ptr());
  return target == nullptr || target == Py_None ? nb::object() : nb::borrow(target);
}

int64_t Registry::Insert(nb::object target, const std::string& name, const std::string& label,
                         const Convention& convention, int64_t wanted) {
  nb::object weak_target = nb::steal(PyWeakref_NewRef(target.ptr(), nullptr));
  if (!weak_target.is_valid()) throw nb::python_error();
  if (nb::object owner = FindByName(name); owner.is_valid()) {
    throw nb::value_error(DuplicateName(name, owner).c_str());
  }
  return names_[name] = Add(std::make_shared<Callback>(name, label, std::move(weak_target),
                                                       convention, SlotIn(Py_TYPE(target.ptr()))),
                            wanted);
}

void Registry::Remove(int64_t id) {
  const Use callback = Find(id);
  if (callback == nullptr) return;
  const nb::object removed = callback->Release();  // dropped last: that may run Python code
  const auto by_name = names_.find(callback->name());
  if (by_name != names_.end() && by_name->second == id) names_.erase(by_name);
  Drop(id);
}

nb::object Registry::FindByName(const std::string& name) {
  const auto by_name = names_.find(name);
  const Use callback = by_name == names_.end() ? Use() : Find(by_name->second);
  return callback == nullptr ? nb::object() : callback->Target();
}

}  // namespace hostcall
