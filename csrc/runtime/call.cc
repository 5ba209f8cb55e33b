#include "call.h"

#include <chrono>
#include <string>
#include <utility>

#include "failure.h"
#include "gil.h"
#include "keeper.h"
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

nb::handle Attribute(nb::handle object, const char* name, Keeper& keeper) {
  return keeper.Keep(UntilExit([&] { return PyObject_GetAttrString(object.ptr(), name); }));
}

nb::handle CallPython(nb::handle function, const std::vector<Buffer>& operands, Keeper& keeper) {
  nb::handle arguments = keeper.Keep(PyTuple_New(static_cast<Py_ssize_t>(operands.size())));
  for (size_t i = 0; i < operands.size(); ++i) {
    PyTuple_SET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i),
                     ToNumpy(operands[i]).release().ptr());
  }
  return keeper.Keep(
      UntilExit([&] { return PyObject_CallObject(function.ptr(), arguments.ptr()); }));
}

void StoreResults(nb::handle returned, const std::vector<Buffer>& results, const std::string& who,
                  Keeper& keeper) {
  nb::handle values = keeper.Keep(SplitResults(returned, results.size()));
  CheckCount(nb::len(values), results.size(), who);
  std::vector<nb::handle> arrays;
  for (size_t i = 0; i < results.size(); ++i) {
    nb::handle value = PyTuple_GET_ITEM(values.ptr(), static_cast<Py_ssize_t>(i));
    arrays.push_back(keeper.Keep(ToArray(value, results[i], i, who)));
  }
  // All of them are checked before a byte of any is copied.
  for (size_t i = 0; i < arrays.size(); ++i) CheckArray(arrays[i], results[i], i, who);
  for (size_t i = 0; i < arrays.size(); ++i) {
    // And once more: copying may let other threads in, which may hold the next array.
    CheckArray(arrays[i], results[i], i, who);
    CopyOut(arrays[i], results[i]);
  }
}

ffi::Error Describe(nb::handle exception, Keeper& keeper) {
  try {
    PyObject* describer = ErrorDescriber().ptr();
    nb::handle described =
        keeper.Keep(UntilExit([&] { return PyObject_CallOneArg(describer, exception.ptr()); }));
    return ffi::Error(static_cast<ffi::ErrorCode>(nb::cast<int>(described[0])), Text(described[1]));
  } catch (std::exception& failed) {
    return ffi::Error(ffi::ErrorCode::kUnknown,
                      Text(exception) + "\n(and telling of it failed: " + failed.what() + ")");
  }
}

// The call itself, which may throw. All that it makes of Python's it gives to `keeper`.
void CallAndStore(const HostCall& call, Keeper& keeper) {
  nb::handle callback = keeper.Keep(FindCallback(call.callback));
  const auto start = std::chrono::steady_clock::now();
  nb::handle function = Attribute(callback, "host_function", keeper);
  nb::handle returned = CallPython(function, call.operands, keeper);
  if (!call.ordered) {
    Registry::Global().SetDuration(call.callback, std::chrono::steady_clock::now() - start);
  }
  try {
    StoreResults(returned, call.results, Text(Attribute(callback, "title", keeper)), keeper);
  } catch (const Failure& failure) {
    throw failure.In(Text(Attribute(callback, "description", keeper)));
  }
}

}  // namespace

void SetErrorDescriber(nb::object describer) { ErrorDescriber() = std::move(describer); }

std::optional<ffi::Error> RunHostCall(const HostCall& call) noexcept {
  if (!PythonIsRunning()) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "A compiled program called back into Python, but the interpreter is "
                      "shutting down. Wait for running programs before the process exits.");
  }
  GilHold gil;
  Keeper keeper;
  nb::handle raised;
  try {
    CallAndStore(call, keeper);
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure.ToError();
  } catch (nb::python_error& error) {
    // The frames of its traceback hold what the user's function had.
    raised = keeper.Keep(nb::borrow(error.value()));
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
  return Describe(raised, keeper);
}

}  // namespace hostcall
