// The extension module `hostcall_runtime._runtime`.
#include "module.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "array_memory.h"
#include "arrays.h"
#include "call.h"
#include "capsules.h"
#include "cuda_driver.h"
#include "early_calls.h"
#include "gil.h"
#include "handler.h"
#include "host_api.h"
#include "interrupts.h"
#include "native_table.h"
#include "pool.h"
#include "registry.h"
#include "stats.h"

namespace nb = nanobind;
namespace capsules = hostcall::capsules;
using hostcall::Registry;

namespace {

nb::capsule Capsule(XLA_FFI_Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler), capsules::kHandler);
}

nb::dict Handlers() {
  nb::dict handlers;
  handlers["hostcall"] = Capsule(&HostcallHandler);
  handlers["hostcall_any"] = Capsule(&HostcallAnyHandler);
  handlers["hostcall_done"] = Capsule(&HostcallDoneHandler);
  handlers["hostcall_gate"] = Capsule(&HostcallGateHandler);
  handlers["hostcall_joint"] = Capsule(&HostcallJointHandler);
  handlers["hostcall_native"] = Capsule(&HostcallNativeHandler);
  handlers["hostcall_raise"] = Capsule(&HostcallRaiseHandler);
  handlers["hostcall_reported"] = Capsule(&HostcallReportedHandler);
  handlers["hostcall_start"] = Capsule(&HostcallStartHandler);
  return handlers;
}

// Calls `function` on the pool, whose thread waits for the caller's GIL and then owns `function`.
void CallOnPool(nb::object function) {
  hostcall::RunOnPool([raw = function.ptr()] {
    if (!hostcall::PythonIsRunning()) return;
    hostcall::GilHold gil;
    hostcall::UntilExit([raw] {
      PyObject* returned = PyObject_CallNoArgs(raw);
      if (returned == nullptr) PyErr_WriteUnraisable(raw);
      Py_XDECREF(returned);
      Py_DECREF(raw);
    });
  });
  function.release();
}

template <typename Called>
void AppendStats(nb::list& rows, const std::vector<std::shared_ptr<Called>>& all, bool reset) {
  const auto take = [reset](hostcall::Stats::Part& part) {
    return reset ? part.exchange(0) : part.load();
  };
  for (const std::shared_ptr<Called>& called : all) {
    hostcall::Stats& stats = called->stats();
    if (stats.calls == 0) continue;
    rows.append(nb::make_tuple(called->label(), take(stats.calls), take(stats.errors),
                               take(stats.waiting), take(stats.function), take(stats.copying),
                               take(stats.bytes)));
  }
}

nb::list TakeStats(bool reset) {
  nb::list rows;
  AppendStats(rows, Registry::Global().All(), reset);
  AppendStats(rows, hostcall::NativeTable::Global().All(), reset);
  return rows;
}

constexpr hostcall::RuntimeApi kApi = {
    &hostcall::RunOnPool,
    &hostcall::BeginRun,
    &hostcall::EndRun,
    &hostcall::interrupts::BeginWait,
    &hostcall::interrupts::EndWait,
    &hostcall::TakeMemory,
    &hostcall::GiveMemory,
};

}  // namespace

NB_MODULE(_runtime, m) {
  m.doc() = "The framework-neutral core of hostcall: callback registry and typed-FFI handler.";
  hostcall::ImportNumpy();
  hostcall::DefineAnnotations(m);
  hostcall::DefineNative(m);
  hostcall::DefineResultContract(m);
  hostcall::DefineLoans(m);
  hostcall::DefineDeviceResults(m);
  hostcall::DefineRunningCalls(m);
  hostcall::DefineThreadStack(m);
  // Callbacks may live until the process ends.
  nb::set_leak_warnings(false);

  m.def(
      "register",
      [](nb::object target, const std::string& name, bool takes_tensors, const std::string& label,
         bool borrows, bool takes_out, bool shares_memory, bool allocates, bool on_device,
         bool concurrent, int64_t wanted) {
        const hostcall::Convention convention{takes_tensors, borrows,   takes_out, shares_memory,
                                              allocates,     on_device, concurrent};
        return Registry::Global().Insert(std::move(target), name, label.empty() ? name : label,
                                         convention, wanted);
      },
      nb::arg("target"), nb::arg("name"), nb::arg("takes_tensors") = false, nb::arg("label") = "",
      nb::arg("borrows") = false, nb::arg("takes_out") = false, nb::arg("shares_memory") = false,
      nb::arg("allocates") = false, nb::arg("on_device") = false, nb::arg("concurrent") = false,
      nb::arg("wanted") = 0,
      "Register `target`, held weakly; return its id, which is never used again. Profiles "
      "and statistics call it `label`; for the rest see Convention in registry.h. Raises "
      "ValueError when a living target has the name. `wanted` is the id that it should have, if no "
      "other has had that; 0 for any.");
  m.def(
      "unregister", [](int64_t id) { Registry::Global().Remove(id); }, nb::arg("id"),
      "Forget an id. Unknown ids are not an error.");
  m.def(
      "find",
      [](const std::string& name) {
        nb::object target = Registry::Global().FindByName(name);
        return target.is_valid() ? target : nb::none();
      },
      nb::arg("name"), nb::sig("def find(name: str) -> object | None"),
      "Return the living target of a name, or None.");
  m.def(
      "size", [] { return Registry::Global().size(); }, "Return the number of registered targets.");
  m.def("set_dtype", &hostcall::SetDtype, nb::arg("code"), nb::arg("dtype"), nb::arg("name"),
        "Set the NumPy dtype of an FFI element type, and its name in messages.");
  m.def(
      "install",
      [](const nb::capsule& host) {
        const auto* api =
            static_cast<const hostcall::HostApi*>(capsules::Get(host, capsules::kHostApi));
        return nb::capsule(hostcall::Install(api), capsules::kHostApi);
      },
      nb::arg("host"),
      "Set the framework's side of the runtime, a pointer to a HostApi (host_api.h). Return the "
      "one that was set before.");
  m.def(
      "api", [] { return nb::capsule(&kApi, capsules::kRuntimeApi); },
      "Return the runtime's side for a framework's bindings, a pointer to a RuntimeApi "
      "(host_api.h).");
  m.def("collect_stats", &hostcall::CollectStats, nb::arg("on"),
        "Switch the count of what calls cost on or off.");
  m.def("collects_stats", &hostcall::CollectsStats, "Return whether the cost of calls is counted.");
  m.def("stats", &TakeStats, nb::arg("reset"),
        "Return for each called callback: its label, calls, errors, nanoseconds of waiting for the "
        "GIL, in the function and of copying, and bytes copied. `reset` sets all counts to 0.");
  m.def("set_binder", &hostcall::SetBinder, nb::arg("binder"),
        "Set the function that binds another one to the settings of a program's starter.");
  m.def("set_interrupt_chooser", &hostcall::interrupts::SetChooser, nb::arg("chooser"),
        "Set the function that chooses the calls to cancel at Ctrl-C; see interrupts.h.");
  m.def("set_error_describer", &hostcall::SetErrorDescriber, nb::arg("describer"),
        "Set the function from an exception to (status code, message).");
  m.def(
      "handlers", &Handlers,
      "Return the FFI handlers for CPUs by custom call targets, in the capsules that JAX's and our "
      "own registration take.");
  m.def("begin_run", &hostcall::BeginRun,
        "Begin a run of a program with async calls; return its number.");
  m.def("end_run", &hostcall::EndRun, nb::arg("run"),
        "End the run of this number: release the calls whose results will not be taken.");
  m.def("kept_array_memory", &hostcall::KeptArrayMemory,
        "Return the number of bytes that are kept for large arguments of callbacks.");
  m.def("count_early_calls", &hostcall::CountEarlyCalls,
        "Return the number of async calls whose results were not taken.");
  m.def(
      "cuda_handler", [] { return Capsule(&HostcallCudaHandler); },
      "Return the FFI handler for programs on NVIDIA GPUs. This needs no GPU.");
  m.def(
      "load_cuda_driver", &hostcall::CudaDriver::Load, nb::arg("path"),
      "Let calls on GPUs use the driver in the file `path`, instead of the system's libcuda.so.1, "
      "which is loaded when it is first needed. Raises RuntimeError where that cannot be loaded.");
  m.def("call_on_pool", &CallOnPool, nb::arg("function"),
        "Call a function without arguments on a thread of the pool, at once. Raises RuntimeError "
        "when no thread can be started.");
  m.def("on_pool_thread", &hostcall::OnPoolThread,
        "Return whether this thread is one of the pool's, all of which run callbacks.");
  m.def(
      "ffi_api_version", [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "Return the FFI API version (major, minor) of the handler's headers.");
}
