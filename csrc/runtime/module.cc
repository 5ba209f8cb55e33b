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
  hostcall::DefineNative(m);
  hostcall::DefineResultContract(m);
  hostcall::DefineLoans(m);
  hostcall::DefineForeignArrays(m);
  hostcall::DefineDeviceResults(m);
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
      "Registers `target`, held weakly, and returns its id, which is never used again. Profiles "
      "and statistics call it `label`; for the rest see Convention in registry.h. Raises "
      "ValueError when a living target has the name. `wanted` is the id that it should have, if no "
      "other has had that; 0 for any.");
  m.def(
      "unregister", [](int64_t id) { Registry::Global().Remove(id); }, nb::arg("id"),
      "Forgets an id. Unknown ids are no error.");
  m.def(
      "find",
      [](const std::string& name) {
        nb::object target = Registry::Global().FindByName(name);
        return target.is_valid() ? target : nb::none();
      },
      nb::arg("name"), nb::sig("def find(name: str) -> object | None"),
      "The living target of a name, or None.");
  m.def("size", [] { return Registry::Global().size(); }, "How many targets are registered.");
  m.def("set_dtype", &hostcall::SetDtype, nb::arg("code"), nb::arg("dtype"), nb::arg("name"),
        "Tells the NumPy dtype of an FFI element type, and its name in messages.");
  m.def(
      "install",
      [](const nb::capsule& host) {
        const auto* api =
            static_cast<const hostcall::HostApi*>(capsules::Get(host, capsules::kHostApi));
        return nb::capsule(hostcall::Install(api), capsules::kHostApi);
      },
      nb::arg("host"),
      "Sets what the runtime has of a framework: a pointer to a HostApi (host_api.h). Returns the "
      "one that was set before.");
  m.def(
      "api", [] { return nb::capsule(&kApi, capsules::kRuntimeApi); },
      "What a framework's bindings have of the runtime: a pointer to a RuntimeApi (host_api.h).");
  m.def("collect_stats", &hostcall::CollectStats, nb::arg("on"),
        "Counts what calls cost from now on, or not.");
  m.def("collects_stats", &hostcall::CollectsStats, "Whether that is counted.");
  m.def(
      "stats", &TakeStats, nb::arg("reset"),
      "For each callback that was called: its label, calls, errors, nanoseconds of waiting for the "
      "GIL, in the function and of copying, and bytes copied. `reset` sets all counts to 0.");
  m.def("set_binder", &hostcall::SetBinder, nb::arg("binder"),
        "Sets the function that lets another one see the settings of who has started a program.");
  m.def("set_interrupt_chooser", &hostcall::interrupts::SetChooser, nb::arg("chooser"),
        "Sets the function that chooses which calls are given up at Ctrl-C: see interrupts.h.");
  m.def("set_error_describer", &hostcall::SetErrorDescriber, nb::arg("describer"),
        "Sets the function from an exception to (status code, message).");
  m.def(
      "handler", [] { return Capsule(&HostcallHandler); },
      "The FFI handler, in the capsule that JAX's and our own registration take.");
  m.def(
      "early_handlers",
      [] {
        nb::dict handlers;
        handlers["hostcall_start"] = Capsule(&HostcallStartHandler);
        handlers["hostcall_gate"] = Capsule(&HostcallGateHandler);
        handlers["hostcall_done"] = Capsule(&HostcallDoneHandler);
        return handlers;
      },
      "Those of calls that go on while their program does, by their custom call targets.");
  m.def(
      "joint_handler", [] { return Capsule(&HostcallJointHandler); },
      "That of calls which the devices of one program make together.");
  m.def(
      "reported_handler", [] { return Capsule(&HostcallReportedHandler); },
      "That which ends programs of several processes with the errors of such calls.");
  m.def(
      "value_handlers",
      [] {
        nb::dict handlers;
        handlers["hostcall_any"] = Capsule(&HostcallAnyHandler);
        handlers["hostcall_raise"] = Capsule(&HostcallRaiseHandler);
        return handlers;
      },
      "Returns the FFI handlers that find and raise the errors of values, by custom call targets.");
  m.def("begin_run", &hostcall::BeginRun,
        "A run of a program with such calls begins. Returns its number.");
  m.def("end_run", &hostcall::EndRun, nb::arg("run"),
        "The run of this number has ended: lets go of calls whose results will not be taken.");
  m.def("kept_array_memory", &hostcall::KeptArrayMemory,
        "How many bytes are kept for large arrays that callbacks will be given.");
  m.def("count_early_calls", &hostcall::CountEarlyCalls,
        "How many of these calls there are whose results were not taken.");
  m.def(
      "cuda_handler", [] { return Capsule(&HostcallCudaHandler); },
      "The same for programs on NVIDIA GPUs. Making it needs no GPU.");
  m.def(
      "load_cuda_driver", &hostcall::CudaDriver::Load, nb::arg("path"),
      "Has calls on GPUs use the driver in the file `path`, instead of the system's libcuda.so.1, "
      "which is loaded when it is first needed. Raises RuntimeError where that cannot be loaded.");
  m.def("call_on_pool", &CallOnPool, nb::arg("function"),
        "Calls a function without arguments on a thread of the pool, at once. Raises RuntimeError "
        "when no thread can be started.");
  m.def("on_pool_thread", &hostcall::OnPoolThread,
        "Whether this thread is one of the pool's, all of which run callbacks.");
  m.def(
      "ffi_api_version", [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "The FFI API version (major, minor) that the handler was built with.");
}
