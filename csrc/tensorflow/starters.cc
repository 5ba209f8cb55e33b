#include "starters.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "module.h"
#include "runtime/gil.h"

namespace nb = nanobind;

namespace hostcall::starters {
namespace {

thread_local StartedRun current;

// Leaked like all that holds Python objects.
struct Table {
  nb::dict runs;      // from the numbers of runs to what is noted of their beginnings
  nb::list captures;  // functions that ask libraries for their settings on this thread
  nb::object begin;   // a function of a run's number, and of the number of its outer run

  static Table& Global() {
    static auto* table = new Table();
    return *table;
  }

  // Notes the run's context, thread and time. Returns false with Python's error set.
  bool Note(int64_t run) const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const long long time = std::chrono::nanoseconds(now).count();
    const auto number = nb::steal(PyLong_FromLongLong(run));
    const auto note = nb::steal(
        Py_BuildValue("[NkL]", PyContext_CopyCurrent(), PyThread_get_thread_ident(), time));
    return number.is_valid() && note.is_valid() &&
           PyDict_SetItem(runs.ptr(), number.ptr(), note.ptr()) == 0;
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

// Calls Python only for what it alone knows: an outer run's starter, and the libraries' settings.
// Then it tries again if Ctrl-C interrupts it, and raises Ctrl-C anew: an exception would be lost
// here.
void Begin(int64_t run, int64_t of) {
  if (!PythonIsRunning()) return;
  GilHold gil;
  const Table& table = Table::Global();
  if (of == kNoRun && table.captures.size() == 0) {
    if (!table.Note(run)) table.Report();
    return;
  }
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
    if (number != nullptr) PyDict_DelItem(table.runs.ptr(), number);
    Py_XDECREF(number);
  });
  PyErr_Clear();
}

Run::Run() : number_(NewNumber()) { Begin(number_, kNoRun); }

Scope::Scope(StartedRun run) : before_(std::exchange(current, std::move(run))) {}

Scope::~Scope() { current = std::move(before_); }

const StartedRun& Current() { return current; }

StartedRun CurrentOrNew() {
  if (current != nullptr || !IsThreadOfPython()) return current;
  return std::make_shared<const Run>();
}

std::function<void()> OfItsStarter(std::function<void()> task) {
  return [run = CurrentOrNew(), task = std::move(task)] {
    const Scope scope(run);
    task();
  };
}

}  // namespace hostcall::starters

namespace hostcall {
namespace {

// TensorFlow's functions that tell and change whether tapes record on a thread. Leaked like all
// that holds Python objects.
struct Recording {
  nb::object is_stopped;
  nb::object resume;
  nb::object stop;
  nb::object has_no_tapes;
};
Recording& recording = *new Recording();

// Scope in which callbacks may run on a thread that Python knows.
//
// TensorFlow stops recording on a user's thread while it runs a function. A tape inside a callback
// would record nothing, and the gradient would silently be zero. If recording is resumed, the
// user's own tapes would note the variables that callbacks read. So a program under those tapes has
// to run on another thread, which has none.
class CallbackThread {
 public:
  CallbackThread() {
    if (!PythonIsRunning()) return;
    GilHold gil;
    if (!Ask(recording.is_stopped)) return;
    Ask(recording.resume);
    resumed_ = Ask(recording.has_no_tapes);
    fits_ = resumed_;
    if (!fits_) Ask(recording.stop);
  }
  ~CallbackThread() {
    if (!resumed_ || !PythonIsRunning()) return;
    GilHold gil;
    Ask(recording.stop);
  }
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  bool fits() const { return fits_; }

 private:
  static bool Ask(const nb::object& function) {
    PyObject* answer = UntilExit([&] { return PyObject_CallNoArgs(function.ptr()); });
    if (answer == nullptr) PyErr_WriteUnraisable(function.ptr());
    Py_XDECREF(answer);  // a bool or None, which are never freed
    return answer == Py_True;
  }

  bool resumed_ = false;
  bool fits_ = true;
};

}  // namespace

bool IsThreadOfPython() { return PyGILState_GetThisThreadState() != nullptr; }

absl::Status RunBesideTensorFlow(std::function<void()> task) {
  if (IsThreadOfPython()) {
    const CallbackThread thread;
    if (thread.fits()) {
      task();
      return absl::OkStatus();
    }
  }
  try {
    runtime->run_on_pool(starters::OfItsStarter(std::move(task)));
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "hostcall: no thread could be started for a compiled function with Python callbacks: ",
        error.what()));
  }
}

void DefineStarters(nb::module_& m) {
  m.def(
      "set_starters",
      [](nb::dict runs, nb::list captures, nb::object begin) {
        starters::Table::Global() = {std::move(runs), std::move(captures), std::move(begin)};
      },
      nb::arg("runs"), nb::arg("captures"), nb::arg("begin"),
      "Set the dict of the runs under way; the list of functions that ask libraries "
      "for their settings; and the function that is told of a run which begins on this thread, if "
      "the list is not empty or the run is a part of another one.");
  m.def(
      "set_recording",
      [](nb::object is_stopped, nb::object resume, nb::object stop, nb::object has_no_tapes) {
        recording = Recording{std::move(is_stopped), std::move(resume), std::move(stop),
                              std::move(has_no_tapes)};
      },
      nb::arg("is_stopped"), nb::arg("resume"), nb::arg("stop"), nb::arg("has_no_tapes"),
      "Set TensorFlow's functions that tell and change whether tapes record on this thread.");
}

}  // namespace hostcall
