#include "starters.h"

#include <atomic>
#include <utility>

#include "runtime/gil.h"

namespace nb = nanobind;

namespace hostcall::starters {
namespace {

thread_local StartedRun current;

// Leaked like all that holds Python objects.
struct Table {
  nb::object begin;      // a function of a run's number, and of the number of its outer run
  nb::object runs;       // a dict from these numbers to starters
  nb::object under_way;  // a set of starters

  static Table& Global() {
    static auto* table = new Table();
    return *table;
  }

  bool Tell(int64_t run, int64_t of) const {
    PyObject* returned = UntilExit([&] {
      return PyObject_CallFunction(begin.ptr(), "LL", static_cast<long long>(run),
                                   static_cast<long long>(of));
    });
    Py_XDECREF(returned);  // None, which is never freed
    return returned != nullptr;
  }

  void Report() const {
    if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(begin.ptr());
  }
};

// Returns a number below those that are addresses, or stand for no run.
int64_t NewNumber() {
  static std::atomic<int64_t> last{-1};
  return --last;
}

}  // namespace

// Tries again if Ctrl-C interrupts it, and raises Ctrl-C anew: an exception would be lost here.
void Begin(int64_t run, int64_t of) {
  if (!PythonIsRunning()) return;
  GilHold gil;
  const Table& table = Table::Global();
  if (table.Tell(run, of) || !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    return table.Report();
  }
  PyErr_Clear();
  table.Tell(run, of);
  table.Report();
  PyErr_SetInterrupt();
}

// Runs no Python code of ours, since the exception of Ctrl-C would be lost here, too.
void End(int64_t run) {
  if (!PythonIsRunning()) return;
  GilHold gil;
  const Table& table = Table::Global();
  UntilExit([&] {
    PyObject* number = PyLong_FromLongLong(run);
    PyObject* starter = number == nullptr ? nullptr : PyDict_GetItem(table.runs.ptr(), number);
    if (starter != nullptr) {
      PySet_Discard(table.under_way.ptr(), starter);
      PyDict_DelItem(table.runs.ptr(), number);
    }
    Py_XDECREF(number);
  });
  PyErr_Clear();
}

Run::Run() : number_(NewNumber()) { Begin(number_, kNoRun); }

Scope::Scope(StartedRun run) : before_(std::exchange(current, std::move(run))) {}

Scope::~Scope() { current = std::move(before_); }

const StartedRun& Current() { return current; }

StartedRun CurrentOrNew() {
  if (current != nullptr || PyGILState_GetThisThreadState() == nullptr) return current;
  return std::make_shared<const Run>();
}

std::function<void()> OfItsStarter(std::function<void()> task) {
  return [run = CurrentOrNew(), task = std::move(task)] {
    const Scope scope(run);
    task();
  };
}

void Define(nb::module_& m) {
  m.def(
      "set_starters",
      [](nb::object begin, nb::dict runs, nb::set under_way) {
        Table::Global() = {std::move(begin), std::move(runs), std::move(under_way)};
      },
      nb::arg("begin"), nb::arg("runs"), nb::arg("under_way"),
      "Sets the function that is told of a run which begins on this thread, by its number and that "
      "of the run it is a part of, and what loses its starter when the run has ended.");
}

}  // namespace hostcall::starters
