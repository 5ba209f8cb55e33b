#include "registry.h"

#include <utility>

#include "fork.h"
#include "text.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

nb::object Dereference(const nb::object& weak_target) {
  if (!weak_target.is_valid()) return nb::object();
  PyObject* target = PyWeakref_GetObject(weak_target.ptr());
  return target == nullptr || target == Py_None ? nb::object() : nb::borrow(target);
}

std::string DuplicateName(const std::string& name, const nb::object& holder) {
  return "A callback named '" + name + "' is registered already: " + Text(nb::repr(holder)) +
         ". A name stands for one callback in the whole process, because programs and saved "
         "models find their callback by it. Give one of the two another name, or drop every "
         "graph that uses the old one first.";
}

}  // namespace

Registry& Registry::Global() {
  // Leaked on purpose: XLA's threads may still look up while the process exits.
  static Registry* registry = [] {
    HoldAcrossFork<&Registry::Mutex>();
    return new Registry();
  }();
  return *registry;
}

int64_t Registry::Insert(nb::object target, const std::string& name) {
  nb::object weak_target = nb::steal(PyWeakref_NewRef(target.ptr(), nullptr));
  if (!weak_target.is_valid()) throw nb::python_error();
  if (nb::object holder = FindByName(name); holder.is_valid()) {
    throw nb::value_error(DuplicateName(name, holder).c_str());
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t id = next_id_++;
  entries_.emplace(id, Entry{name, std::move(weak_target), {}});
  ids_[name] = id;
  return id;
}

void Registry::Remove(int64_t id) {
  // Moved out first: dropping the weak reference may run Python code, which must not meet the lock.
  Entry removed;
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  removed = std::move(entry->second);
  if (auto by_name = ids_.find(removed.name); by_name != ids_.end() && by_name->second == id) {
    ids_.erase(by_name);
  }
  entries_.erase(entry);
}

nb::object Registry::Find(int64_t id) {
  nb::object weak_target;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto entry = entries_.find(id); entry != entries_.end()) {
      weak_target = entry->second.weak_target;
    }
  }
  return Dereference(weak_target);
}

nb::object Registry::FindByName(const std::string& name) {
  int64_t id = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto by_name = ids_.find(name); by_name != ids_.end()) id = by_name->second;
  }
  return Find(id);
}

void Registry::SetDuration(int64_t id, std::chrono::nanoseconds duration) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto entry = entries_.find(id); entry != entries_.end()) entry->second.duration = duration;
}

std::chrono::nanoseconds Registry::Duration(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = entries_.find(id);
  return entry == entries_.end() ? std::chrono::nanoseconds(0) : entry->second.duration;
}

size_t Registry::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

}  // namespace hostcall
