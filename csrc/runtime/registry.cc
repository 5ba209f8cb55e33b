#include "registry.h"

#include <algorithm>
#include <utility>

#include "fork.h"
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

}  // namespace

nb::object Callback::Target() const {
  if (!weak_target_.is_valid()) return nb::object();
  PyObject* target = PyWeakref_GetObject(weak_target_.ptr());
  return target == nullptr || target == Py_None ? nb::object() : nb::borrow(target);
}

Registry& Registry::Global() {
  // Leaked: XLA's threads may still look up while the process exits.
  static Registry* registry = [] {
    HoldAcrossFork<&Registry::Mutex>();
    HoldAcrossFork<&Registry::MutexOfCallbacks>();
    return new Registry();
  }();
  return *registry;
}

int64_t Registry::Insert(nb::object target, const std::string& name, const std::string& label,
                         const Convention& convention, int64_t wanted) {
  nb::object weak_target = nb::steal(PyWeakref_NewRef(target.ptr(), nullptr));
  if (!weak_target.is_valid()) throw nb::python_error();
  if (nb::object owner = FindByName(name); owner.is_valid()) {
    throw nb::value_error(DuplicateName(name, owner).c_str());
  }
  int64_t id;
  int64_t number;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    id = numbers_.Next(wanted);
    number = inserted_++;
    ids_[name] = id;
  }
  callbacks_.Insert(
      id, std::make_shared<Callback>(number, name, label, std::move(weak_target), convention));
  return id;
}

void Registry::Remove(int64_t id) {
  const std::shared_ptr<Callback> callback = callbacks_.Find(id);
  if (callback == nullptr) return;
  // Dropped last: that may run Python code, which must not run under the lock.
  const nb::object removed = callback->Release();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto by_name = ids_.find(callback->name());
    if (by_name != ids_.end() && by_name->second == id) ids_.erase(by_name);
  }
  callbacks_.Remove(id);
}

nb::object Registry::FindByName(const std::string& name) {
  int64_t id = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto by_name = ids_.find(name); by_name != ids_.end()) id = by_name->second;
  }
  const std::shared_ptr<Callback> callback = callbacks_.Find(id);
  return callback == nullptr ? nb::object() : callback->Target();
}

std::vector<std::shared_ptr<Callback>> Registry::All() {
  std::vector<std::shared_ptr<Callback>> all;
  for (auto& [id, callback] : callbacks_.All()) all.push_back(std::move(callback));
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a->number() < b->number(); });
  return all;
}

size_t Registry::size() { return callbacks_.All().size(); }

}  // namespace hostcall
