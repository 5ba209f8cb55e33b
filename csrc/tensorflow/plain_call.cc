// Calls of traced functions that do no more than to run the function's program. All that
// TensorFlow's Python and ours look at before such a call is read here, and then the program is run
// as TFE_Py_Execute runs it. That one asks three times for an op of the function's name, and each
// time writes an error that there is none, with the name of the host: 2 us of a call.
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "c_api_pointers.h"
#include "module.h"
#include "runtime/gil.h"
#include "tensorflow/c/eager/c_api.h"
#include "tensorflow/c/eager/c_api_experimental.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/python/eager/pywrap_tfe.h"
#include "tensorflow/python/lib/core/py_exception_registry.h"
#include "tsl/profiler/lib/traceme.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

using OpOfCall = std::unique_ptr<TFE_Op, DeleteBy<&TFE_DeleteOp>>;
using ExecutorOfThread = std::unique_ptr<TFE_Executor, DeleteBy<&TFE_DeleteExecutor>>;

// A name of Python's, which its dicts find by its address.
nb::object Interned(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

// The objects of TensorFlow's Python that decide how calls run.
struct Surroundings {
  nb::object graphs;        // the stack of default graphs, another one in each thread
  nb::object cancellation;  // the dict of the module that has the active CancellationManager
  nb::object execution;     // the dict of the module that has `execute`
  nb::object is_stock;      // tells whether an `execute` does no more than TensorFlow's own
  nb::object stock;         // the last one that did no more
  nb::object array;         // the type of NumPy's arrays

  const nb::object stack = Interned("stack");
  const nb::object active_context = Interned("_active_context");
  const nb::object execute = Interned("execute");
  const nb::object context_handle = Interned("_context_handle");
  const nb::object config = Interned("_config_proto_serialized");
  const nb::object executor = Interned("_executor_type");
  const nb::object dtype = Interned("dtype");
};

// Null until `set_surroundings`. Leaked: Python objects that must not be released after the
// interpreter is gone.
Surroundings* surroundings = nullptr;

// Returns an attribute; a null object, with no exception set, without one.
nb::object Attribute(nb::handle object, const nb::object& name) {
  PyObject* found = PyObject_GetAttr(object.ptr(), name.ptr());
  if (found == nullptr) PyErr_Clear();
  return nb::steal(found);
}

// Raises the exception that TensorFlow has for a status.
[[noreturn]] void Raise(const StatusPtr& status) {
  nb::dict payloads;
  const auto add = [](const char* key, const char* value, void* all) {
    (*static_cast<nb::dict*>(all))[nb::bytes(key)] = nb::bytes(value);
  };
  TF_ForEachPayload(status.get(), add, &payloads);
  const nb::tuple arguments =
      nb::make_tuple(nb::none(), nb::none(), TF_Message(status.get()), payloads);
  PyErr_SetObject(tensorflow::PyExceptionRegistry::Lookup(TF_GetCode(status.get())),
                  arguments.ptr());
  throw nb::python_error();
}

bool IsOk(const StatusPtr& status) { return TF_GetCode(status.get()) == TF_OK; }

// Returns whether no tape and no ForwardAccumulator records on this thread.
bool NothingRecords() { return nb::steal(TFE_Py_TapeSetIsEmpty()).is(Py_True); }

// Returns whether this thread builds a graph, perhaps in the eager mode of an init_scope.
bool BuildsGraph() {
  const nb::object stack = Attribute(surroundings->graphs, surroundings->stack);
  return !stack.is_valid() || !PyList_CheckExact(stack.ptr()) || PyList_GET_SIZE(stack.ptr()) > 0;
}

bool CanBeCancelled() {
  return PyDict_GetItemWithError(surroundings->cancellation.ptr(),
                                 surroundings->active_context.ptr()) != Py_None;
}

// Returns whether nobody has put something around TensorFlow's `execute`.
bool ExecuteIsStock() {
  PyObject* found =
      PyDict_GetItemWithError(surroundings->execution.ptr(), surroundings->execute.ptr());
  if (found == nullptr || surroundings->stock.is(found)) return found != nullptr;
  const nb::object execute = nb::borrow(found);
  if (!nb::cast<bool>(surroundings->is_stock(execute))) return false;
  surroundings->stock = execute;
  return true;
}

// Returns the eager context of this thread, a null object without one.
nb::object CurrentContext() {
  PyObject* context = GetPyEagerContext();
  if (context == nullptr) PyErr_Clear();
  return nb::steal(context);
}

// Returns what TensorFlow keeps of a context for this thread; null if it cannot be read.
const tensorflow::EagerContextThreadLocalData* OfThisThread(nb::handle context) {
  const auto* found = tensorflow::GetEagerContextThreadLocalData(context.ptr());
  if (found == nullptr) PyErr_Clear();
  return found;
}

nb::object OrNone(const tensorflow::Safe_PyObjectPtr& object) {
  return object == nullptr ? nb::none() : nb::borrow(object.get());
}

// The characters of a string of Python's, which it keeps alive.
struct Characters {
  nb::object string;
  const char* data = "";
  size_t size = 0;

  // Takes the characters of bytes or a str; returns false for anything else.
  bool Read(nb::object value) {
    Py_ssize_t length = 0;
    if (PyBytes_CheckExact(value.ptr())) {
      data = PyBytes_AS_STRING(value.ptr());
      length = PyBytes_GET_SIZE(value.ptr());
    } else {
      data = PyUnicode_CheckExact(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &length)
                                               : nullptr;
      if (data == nullptr) PyErr_Clear();
    }
    size = static_cast<size_t>(length);
    string = std::move(value);
    return data != nullptr;
  }
};

// The settings of this thread for a call.
class Settings {
 public:
  // Reads them; returns false if a call in the context does more than to run a program.
  bool Read(nb::handle of) {
    if (surroundings == nullptr || !NothingRecords()) return false;
    const nb::object current = CurrentContext();
    if (!current.is(of)) return false;
    const auto* local = OfThisThread(current);
    if (local == nullptr || !local->is_eager || BuildsGraph()) return false;
    if (CanBeCancelled() || !ExecuteIsStock() || !ReadContext(current)) return false;
    const nb::object device = OrNone(local->device_name);
    return ReadOptions(OrNone(local->function_call_options)) &&
           (device.is_none() || device_.Read(device));
  }

  bool has_device() const { return device_.size > 0; }

  // Makes a call with the settings; it can be used if the status is OK then.
  OpOfCall NewCall(const std::string& function, const StatusPtr& status) const {
    OpOfCall op(TFE_NewOp(context_, function.c_str(), status.get()));
    if (!IsOk(status)) return op;
    if (has_device()) TFE_OpSetDevice(op.get(), device_.data, status.get());
    TFE_OpSetAttrString(op.get(), "executor_type", executor_.data, executor_.size);
    TFE_OpSetAttrString(op.get(), "config_proto", config_.data, config_.size);
    return op;
  }

 private:
  bool ReadContext(const nb::object& context) {
    capsule_ = Attribute(context, surroundings->context_handle);
    if (!capsule_.is_valid() || !PyCapsule_IsValid(capsule_.ptr(), nullptr)) return false;
    context_ = static_cast<TFE_Context*>(PyCapsule_GetPointer(capsule_.ptr(), nullptr));
    return !TFE_ExecutorIsAsync(ExecutorOfThread(TFE_ContextGetExecutorForThread(context_)).get());
  }

  // They are made by the first call on the thread.
  bool ReadOptions(const nb::object& options) {
    const nb::object config = Attribute(options, surroundings->config);
    const nb::object executor = Attribute(options, surroundings->executor);
    if (!config.is_valid() || !executor.is_valid()) return false;
    return config_.Read(config) && (executor.is_none() || executor_.Read(executor));
  }

  nb::object capsule_;
  TFE_Context* context_ = nullptr;
  Characters device_;
  Characters config_;
  Characters executor_;
};

// The dtype and the shape of an argument.
struct Spec {
  TF_DataType dtype;
  nb::object numpy_dtype;                     // None if arrays are not to be copied
  std::optional<std::vector<int64_t>> sizes;  // none if the rank varies; -1 for a size that does

  // Returns whether a value is an EagerTensor of this spec.
  bool Holds(nb::handle value, const StatusPtr& status) const {
    if (!EagerTensor_CheckExact(value.ptr())) return false;
    TFE_TensorHandle* const tensor = EagerTensor_Handle(value.ptr());
    if (TFE_TensorHandleDataType(tensor) != dtype) return false;
    if (!sizes.has_value()) return true;
    int left = TFE_TensorHandleNumDims(tensor, status.get());
    if (left != static_cast<int>(sizes->size())) return false;
    while (left-- > 0) {
      const int64_t size = (*sizes)[static_cast<size_t>(left)];
      if (size >= 0 && size != TFE_TensorHandleDim(tensor, left, status.get())) return false;
    }
    return IsOk(status);
  }

  // Returns a tensor with a copy of an array of NumPy's; None for another value or dtype.
  nb::object Copy(nb::handle value) const {
    const bool is_array = value.type().is(surroundings->array);
    const bool fits = is_array && Attribute(value, surroundings->dtype).is(numpy_dtype);
    return fits ? CopyOfArray(value, dtype) : nb::none();
  }
};

// The tensors that a call passes to its function.
class Inputs {
 public:
  // If ops go to a device that the user named, arrays are left to Python.
  Inputs(const std::vector<Spec>& specs, bool has_device)
      : specs_(specs), has_device_(has_device), tensors_(specs.size()) {}

  // Takes the tensors of arguments, and makes those of arrays. The pattern has the place of a
  // tensor where the arguments have the tensor. Returns false if they differ in their structure, or
  // a value from its spec.
  bool Read(nb::handle pattern, nb::handle value) {
    if (PyLong_CheckExact(pattern.ptr())) return Take(PyLong_AsSize_t(pattern.ptr()), value);
    if (!value.type().is(pattern.type())) return false;
    if (PyDict_CheckExact(pattern.ptr())) return ReadDict(pattern, value);
    const bool known = PyTuple_CheckExact(pattern.ptr()) || PyList_CheckExact(pattern.ptr());
    return known && ReadSequence(pattern, value);
  }

  // Adds what the function has captured; returns false if that is not known without Python.
  bool Add(nb::handle captured) {
    for (const nb::object& tensor : tensors_) handles_.push_back(EagerTensor_Handle(tensor.ptr()));
    if (!PyList_CheckExact(captured.ptr())) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(captured.ptr()); ++i) {
      PyObject* tensor = PyList_GET_ITEM(captured.ptr(), i);
      if (!EagerTensor_CheckExact(tensor)) return false;
      handles_.push_back(EagerTensor_Handle(tensor));
    }
    return true;
  }

  const TFE_InputTensorHandles& handles() const { return handles_; }

 private:
  bool Take(size_t place, nb::handle value) {
    const bool left = has_device_ || EagerTensor_CheckExact(value.ptr());
    tensors_[place] = left ? nb::borrow(value) : specs_[place].Copy(value);
    return specs_[place].Holds(tensors_[place], status_);
  }

  // A copy of a large array lets other threads run, which may change lists and dicts meanwhile.
  bool ReadSequence(nb::handle pattern, nb::handle value) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(pattern.ptr());
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (PySequence_Fast_GET_SIZE(value.ptr()) != size) return false;
      const nb::object part = nb::borrow(PySequence_Fast_GET_ITEM(value.ptr(), i));
      if (!Read(PySequence_Fast_GET_ITEM(pattern.ptr(), i), part)) return false;
    }
    return PySequence_Fast_GET_SIZE(value.ptr()) == size;
  }

  bool ReadDict(nb::handle pattern, nb::handle value) {
    PyObject* key = nullptr;
    PyObject* expected = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(pattern.ptr(), &at, &key, &expected);) {
      PyObject* found = PyDict_GetItemWithError(value.ptr(), key);
      if (found == nullptr) PyErr_Clear();
      if (found == nullptr || !Read(expected, nb::borrow(found))) return false;
    }
    return PyDict_GET_SIZE(value.ptr()) == PyDict_GET_SIZE(pattern.ptr());
  }

  const std::vector<Spec>& specs_;
  const bool has_device_;
  const StatusPtr status_{TF_NewStatus()};
  absl::InlinedVector<nb::object, 4> tensors_;
  TFE_InputTensorHandles handles_;
};

// Traced function in an eager context.
class PlainCall {
 public:
  PlainCall(nb::object context, std::string name, nb::object pattern, std::vector<Spec> specs,
            int results, bool single)
      : context_(std::move(context)),
        name_(std::move(name)),
        pattern_(std::move(pattern)),
        specs_(std::move(specs)),
        results_(static_cast<size_t>(results)),
        single_(single) {}

  nb::object Run(nb::handle arguments, nb::handle captured) const {
    Settings settings;
    if (!settings.Read(context_)) return nb::borrow(Py_NotImplemented);
    Inputs inputs(specs_, settings.has_device());
    if (!inputs.Read(pattern_, arguments) || !inputs.Add(captured)) {
      return nb::borrow(Py_NotImplemented);
    }
    return Execute(settings, inputs.handles());
  }

 private:
  nb::object Execute(const Settings& settings, const TFE_InputTensorHandles& inputs) const {
    const tsl::profiler::TraceMe activity("TFE_Py_ExecuteCancelable", tsl::profiler::kInfo);
    const StatusPtr status(TF_NewStatus());
    const OpOfCall op = settings.NewCall(name_, status);
    if (!IsOk(status)) Raise(status);
    for (TFE_TensorHandle* input : inputs) {
      if (IsOk(status)) TFE_OpAddInput(op.get(), input, status.get());
    }
    TFE_OutputTensorHandles outputs(results_);
    int count = static_cast<int>(results_);
    if (IsOk(status)) {
      WithoutGil([&] { TFE_Execute(op.get(), outputs.data(), &count, status.get()); });
    }
    if (!IsOk(status)) RaiseForOp(status);
    outputs.resize(static_cast<size_t>(count));
    return single_ && count == 1 ? ToTensor(outputs[0]) : ToTensors(outputs);
  }

  [[noreturn]] void RaiseForOp(const StatusPtr& status) const {
    const std::string message = TF_Message(status.get()) + (" [Op:" + name_ + "]");
    TF_SetStatus(status.get(), TF_GetCode(status.get()), message.c_str());
    Raise(status);
  }

  static nb::object ToTensor(TFE_TensorHandle* handle) {
    PyObject* tensor = EagerTensorFromHandle(handle);
    if (tensor == nullptr) throw nb::python_error();
    return nb::steal(tensor);
  }

  static nb::object ToTensors(const TFE_OutputTensorHandles& handles) {
    nb::list tensors;
    for (TFE_TensorHandle* handle : handles) tensors.append(ToTensor(handle));
    return tensors;
  }

  const nb::object context_;
  const std::string name_;
  const nb::object pattern_;
  const std::vector<Spec> specs_;
  const size_t results_;
  const bool single_;
};

// Reads a spec of Python's: the number of a dtype, NumPy's dtype or None, None or a list of sizes.
Spec ReadSpec(nb::handle spec) {
  Spec read{static_cast<TF_DataType>(nb::cast<int>(spec[0])), spec[1], std::nullopt};
  const nb::object sizes = spec[2];
  if (sizes.is_none()) return read;
  read.sizes.emplace();
  for (nb::handle size : sizes) {
    read.sizes->push_back(size.is_none() ? -1 : nb::cast<int64_t>(size));
  }
  return read;
}

void MakePlainCall(PlainCall* made, nb::object context, const nb::str& name, nb::object pattern,
                   const nb::list& specs, int results, bool single) {
  std::vector<Spec> read;
  for (nb::handle spec : specs) read.push_back(ReadSpec(spec));
  new (made) PlainCall(std::move(context), name.c_str(), std::move(pattern), std::move(read),
                       results, single);
}

// Returns what TensorFlow's header says of a context on this thread, for a check of the header.
nb::object ThreadSettings(nb::handle context) {
  const auto* local = OfThisThread(context);
  if (local == nullptr) return nb::none();
  return nb::make_tuple(local->is_eager, OrNone(local->device_name),
                        OrNone(local->function_call_options));
}

void SetSurroundings(nb::object graphs, nb::dict cancellation, nb::dict execution,
                     nb::object is_stock, nb::object array) {
  if (surroundings == nullptr) surroundings = new Surroundings();
  surroundings->graphs = std::move(graphs);
  surroundings->cancellation = std::move(cancellation);
  surroundings->execution = std::move(execution);
  surroundings->is_stock = std::move(is_stock);
  surroundings->stock = nb::object();
  surroundings->array = std::move(array);
}

}  // namespace

void DefinePlainCalls(nb::module_& m) {
  nb::class_<PlainCall>(m, "PlainCall", "A traced function that can be called without Python code.")
      .def("__init__", &MakePlainCall, nb::arg("context"), nb::arg("name"), nb::arg("pattern"),
           nb::arg("specs"), nb::arg("results"), nb::arg("single"),
           "Take the eager context of a function, its name, the structure of its arguments with "
           "numbers from 0 on in the place of tensors, the specs of these, the number of results, "
           "and whether to return one by itself. A spec is the number of a dtype, NumPy's dtype if "
           "arrays of it are taken or None, and the sizes, None for what varies.")
      .def("run", &PlainCall::Run, nb::arg("arguments").none(), nb::arg("captured").none(),
           "Call the function on a structure of tensors and arrays; return its results. Return "
           "NotImplemented, having run nothing, if the call has to do more, or if an argument is "
           "not of its spec.");
  m.def("thread_settings", &ThreadSettings, nb::arg("context"),
        "Return whether this thread is in eager mode, its device, and its options of calls, as "
        "C++ sees them; None without any.");
  m.def("set_surroundings", &SetSurroundings, nb::arg("graphs"), nb::arg("cancellation"),
        nb::arg("execution"), nb::arg("is_stock"), nb::arg("array"),
        "Set what plain calls look at: the stack of default graphs, the dicts of the modules of "
        "CancellationManagers and of `execute`, what tells whether an `execute` is stock, and the "
        "type of NumPy's arrays.");
}

}  // namespace hostcall
