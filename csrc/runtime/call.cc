#include "call.h"

#include <chrono>
#include <string>
#include <utility>

#include "failure.h"
#include "gil.h"
#include "registry.h"
#include "text.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// Leaked for the same reason as the dtypes: it must not be released after the interpreter is gone.
nb::object& ErrorDescriber() {
  static auto* describer = new nb::object();
  return *describer;
}

nb::object FindCallback(int64_t id) {
  nb::object callback = Registry::Global().Find(id);
  if (!callback.is_valid()) {
    throw Failure(ffi::ErrorCode::kFailedPrecondition,
                  "The Python function of host callback number " + std::to_string(id) +
                      " is gone: the graph that this program was compiled from has been deleted. "
                      "Keep the tf.function (or the model) for as long as its program runs.");
  }
  return callback;
}

nb::object CallPython(const nb::object& function, const std::vector<Buffer>& operands) {
  nb::object arguments = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(operands.size())));
  if (!arguments.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < operands.size(); ++i) {
    PyTuple_SET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i),
                     ToNumpy(operands[i]).release().ptr());
  }
  nb::object returned =
      nb::steal(UntilExit([&] { return PyObject_CallObject(function.ptr(), arguments.ptr()); }));
  if (!returned.is_valid()) throw nb::python_error();
  return returned;
}

// Drops the values before all else, on every path: what a `__del__` does is the user's code once
// more.
class DropValues {
 public:
  explicit DropValues(std::vector<nb::object>& values) : values_(values) {}
  ~DropValues() {
    for (nb::object& value : values_) {
      PyObject* object = value.release().ptr();
      UntilExit([object] { Py_XDECREF(object); });
    }
  }
  DropValues(const DropValues&) = delete;
  DropValues& operator=(const DropValues&) = delete;

 private:
  std::vector<nb::object>& values_;
};

void StoreResults(nb::object returned, const std::vector<Buffer>& results, const std::string& who) {
  std::vector<nb::object> values = SplitResults(std::move(returned), results.size(), who);
  DropValues drop(values);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ToArray(std::move(values[i]), results[i], i, who);
  }
  // All of them are checked before a byte of any is copied.
  for (size_t i = 0; i < values.size(); ++i) CheckArray(values[i], results[i], i, who);
  for (size_t i = 0; i < values.size(); ++i) {
    // And once more: copying may let other threads in, which may hold the next array.
    CheckArray(values[i], results[i], i, who);
    CopyOut(values[i], results[i]);
  }
}

ffi::Error Describe(nb::python_error& error) {
  try {
    PyObject* describer = ErrorDescriber().ptr();
    PyObject* exception = error.value().ptr();
    nb::object described =
        nb::steal(UntilExit([&] { return PyObject_CallOneArg(describer, exception); }));
    if (!described.is_valid()) throw nb::python_error();
    return ffi::Error(static_cast<ffi::ErrorCode>(nb::cast<int>(described[0])), Text(described[1]));
  } catch (std::exception& failed) {
    return ffi::Error(
        ffi::ErrorCode::kUnknown,
        std::string(error.what()) + "\n(and telling of it failed: " + failed.what() + ")");
  }
}

}  // namespace

void SetErrorDescriber(nb::object describer) { ErrorDescriber() = std::move(describer); }

bool PythonIsRunning() {
  // _Py_IsFinalizing became public as Py_IsFinalizing in 3.13.
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

std::optional<ffi::Error> RunHostCall(const HostCall& call) noexcept {
  if (!PythonIsRunning()) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "A compiled program called back into Python, but the interpreter is "
                      "shutting down. Wait for running programs before the process exits.");
  }
  GilHold gil;
  std::optional<nb::python_error> raised;
  try {
    nb::object callback = FindCallback(call.callback);
    const auto start = std::chrono::steady_clock::now();
    nb::object returned = CallPython(callback.attr("host_function"), call.operands);
    if (!call.ordered) {
      Registry::Global().SetDuration(call.callback, std::chrono::steady_clock::now() - start);
    }
    try {
      StoreResults(std::move(returned), call.results, Text(callback.attr("title")));
    } catch (const Failure& failure) {
      throw failure.In(Text(callback.attr("description")));
    }
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure.ToError();
  } catch (nb::python_error& error) {
    raised.emplace(std::move(error));
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
  return Describe(*raised);
}

}  // namespace hostcall
