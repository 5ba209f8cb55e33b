// Running Python code on a thread that may outlive the interpreter.
#pragma once

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <type_traits>

#include "small_vector.h"

namespace hostcall {

// Returns true while a thread that does not hold the GIL yet may run Python code.
inline bool PythonIsRunning() {
  // _Py_IsFinalizing became public as Py_IsFinalizing in 3.13.
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// Blocks for ever. If the interpreter shuts down while a thread waits for the GIL, Python ends that
// thread: it unwinds the stack by force, through C++ frames whose destructors would touch Python
// objects without the GIL. So the first frame of ours that it reaches stops the unwinding for good.
// The process is about to exit, and takes the thread with it. (From 3.14 on Python does the same.)
[[noreturn]] inline void WaitForProcessExit() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  while (true) never.wait(lock);
}

// A guard that stops this unwinding. Not a catch block: one that runs while another exception is
// handled would end the process.
class ExitGuard {
 public:
  ExitGuard() = default;
  ~ExitGuard() {
    // Python ends threads only while it shuts down. Before that it is an exception, which goes on.
    if (armed_ && !PythonIsRunning()) WaitForProcessExit();
  }
  void Disarm() { armed_ = false; }
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

 private:
  bool armed_ = true;
};

// Returns the result of `f`, which calls a Python function that may release the GIL, and so may
// meet the end of the interpreter. `f` must own nothing that has to be destroyed.
template <typename F>
auto UntilExit(F&& f) {
  ExitGuard guard;
  if constexpr (std::is_void_v<decltype(f())>) {
    f();
    guard.Disarm();
  } else {
    auto result = f();
    guard.Disarm();
    return result;
  }
}

// Calls `f`, which may throw, with the GIL released.
template <typename F>
void WithoutGil(F&& f) {
  std::exception_ptr failed;
  PyThreadState* const state = PyEval_SaveThread();
  try {
    f();
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  UntilExit([state] { PyEval_RestoreThread(state); });
  if (failed != nullptr) std::rethrow_exception(failed);
}

// Collects garbage. PyGC_Collect does nothing if the user has switched the collector off. Needs the
// GIL, and may run user code.
inline void CollectGarbage() {
  UntilExit([] {
    PyObject* gc = PyImport_ImportModule("gc");
    PyObject* count = gc == nullptr ? nullptr : PyObject_CallMethod(gc, "collect", nullptr);
    if (count == nullptr) PyErr_Clear();
    Py_XDECREF(count);
    Py_XDECREF(gc);
  });
}

class GilHold {
 public:
  GilHold() : state_(UntilExit([] { return PyGILState_Ensure(); })) {}
  ~GilHold() { PyGILState_Release(state_); }
  GilHold(const GilHold&) = delete;
  GilHold& operator=(const GilHold&) = delete;

 private:
  PyGILState_STATE state_;
};

// The owner of Python objects, which it drops after everything else: a `__del__` is user code too,
// and may meet the interpreter's end, when nothing else may be left to destroy. Make it right after
// a GilHold. Hidden like nanobind's types, also in modules with visible symbols.
class __attribute__((visibility("hidden"))) DeferredDecrefScope {
 public:
  DeferredDecrefScope() = default;
  ~DeferredDecrefScope() {
    for (PyObject* object : objects_) Drop(object);
  }
  DeferredDecrefScope(const DeferredDecrefScope&) = delete;
  DeferredDecrefScope& operator=(const DeferredDecrefScope&) = delete;

  nanobind::handle Defer(nanobind::object object) {
    PyObject* kept = object.release().ptr();
    objects_.push_back(kept);
    return kept;
  }

  // Takes the result of a function of Python's C API, which is null if the function raised.
  nanobind::handle Defer(PyObject* returned) {
    if (returned == nullptr) throw nanobind::python_error();
    return Defer(nanobind::steal(returned));
  }

  // Returns an attribute, whose getter may be user code.
  nanobind::handle Attribute(nanobind::handle object, PyObject* name) {
    return Defer(UntilExit([&] { return PyObject_GetAttr(object.ptr(), name); }));
  }

  template <typename... Arguments>
  nanobind::handle Call(nanobind::handle function, const Arguments&... arguments) {
    return Defer(UntilExit(
        [&] { return PyObject_CallFunctionObjArgs(function.ptr(), arguments.ptr()..., nullptr); }));
  }

 private:
  static void Drop(PyObject* object) {
    UntilExit([object] { Py_XDECREF(object); });
  }

  SmallVector<PyObject*, 12> objects_;
};

}  // namespace hostcall
