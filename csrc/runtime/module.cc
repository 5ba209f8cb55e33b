// The extension module `hostcall_runtime._runtime`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "array_memory.h"
#include "arrays.h"
#include "buffer_provider.h"
#include "call.h"
#include "capsules.h"
#include "cuda_driver.h"
#include "device_results.h"
#include "early_calls.h"
#include "foreign_arrays.h"
#include "gil.h"
#include "handler.h"
#include "interrupts.h"
#include "joint_calls.h"
#include "loans.h"
#include "memory_api.h"
#include "native.h"
#include "native_table.h"
#include "pool.h"
#include "registry.h"
#include "result_contract.h"
#include "stats.h"
#include "tensors.h"
#include "thread_stack.h"
#include "turns.h"

namespace nb = nanobind;
namespace capsules = hostcall::capsules;
using hostcall::Registry;

namespace {

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

}  // namespace

NB_MODULE(_runtime, m) {
  m.doc() = "The framework-neutral core of hostcall: callback registry and typed-FFI handler.";
  hostcall::ImportNumpy();
  hostcall::DefineNative(m);
  hostcall::DefineResultContract(m);
  hostcall::DefineLoans(m);
  hostcall::DefineForeignArrays(m);
  hostcall::DefineDeviceResults(m);
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
      "set_tensor_api",
      [](const nb::capsule& api) {
        hostcall::SetTensorApi(
            static_cast<const hostcall::TensorApi*>(capsules::Get(api, capsules::kTensorApi)));
      },
      nb::arg("api"), "Sets how tensors are made and read: a pointer to a TensorApi (tensors.h).");
  m.def(
      "set_buffer_provider_api",
      [](const nb::capsule& api) {
        return nb::capsule(
            hostcall::SetBufferProviderApi(static_cast<const hostcall::BufferProviderApi*>(
                capsules::Get(api, capsules::kBufferProviderApi))),
            capsules::kBufferProviderApi);
      },
      nb::arg("api"),
      "Sets who provides programs' memory to arrays: a pointer to a BufferProviderApi "
      "(buffer_provider.h). Returns the one "
      "that was set before.");
  m.def(
      "set_profiler_api",
      [](const nb::capsule& api) {
        hostcall::SetProfilerApi(
            static_cast<const hostcall::ProfilerApi*>(capsules::Get(api, capsules::kProfilerApi)));
      },
      nb::arg("api"), "Sets the profiler that is told of calls: a pointer to a ProfilerApi.");
  m.def(
      "set_run_finder",
      [](const nb::capsule& finder) {
        hostcall::turns::SetRunFinder(static_cast<const hostcall::turns::RunFinder*>(
            capsules::Get(finder, capsules::kRunFinder)));
      },
      nb::arg("finder"),
      "Sets how the run of a call is found where XLA does not tell: a pointer to a RunFinder "
      "(turns.h).");
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
      "handler",
      [] { return nb::capsule(reinterpret_cast<void*>(&HostcallHandler), capsules::kHandler); },
      "The FFI handler, in the capsule that JAX's and our own registration take.");
  m.def(
      "early_handlers",
      [] {
        nb::dict handlers;
        const auto add = [&](const char* target, XLA_FFI_Handler* handler) {
          handlers[target] = nb::capsule(reinterpret_cast<void*>(handler), capsules::kHandler);
        };
        add("hostcall_start", &HostcallStartHandler);
        add("hostcall_gate", &HostcallGateHandler);
        add("hostcall_done", &HostcallDoneHandler);
        return handlers;
      },
      "Those of calls that go on while their program does, by their custom call targets.");
  m.def(
      "joint_handler",
      [] {
        return nb::capsule(reinterpret_cast<void*>(&HostcallJointHandler), capsules::kHandler);
      },
      "That of calls which the devices of one program make together.");
  m.def(
      "early_calls",
      [] { return nb::capsule(hostcall::GetEarlyCallsApi(), capsules::kEarlyCallsApi); },
      "What is told of runs of programs with such calls: a pointer to an EarlyCallsApi.");
  m.def(
      "interrupts",
      [] {
        return nb::capsule(hostcall::interrupts::GetInterruptsApi(), capsules::kInterruptsApi);
      },
      "What gives up calls when Ctrl-C comes: a pointer to an InterruptsApi.");
  m.def("begin_run", &hostcall::BeginRun,
        "A run of a program with such calls begins. Returns its number.");
  m.def("end_run", &hostcall::EndRun, nb::arg("run"),
        "The run of this number has ended: lets go of calls whose results nobody will take.");
  m.def("kept_array_memory", &hostcall::KeptArrayMemory,
        "How many bytes are kept for large arrays that callbacks will be given.");
  m.def(
      "memory_api", [] { return nb::capsule(hostcall::GetMemoryApi(), capsules::kMemoryApi); },
      "The memory of these arrays, for other modules: a pointer to a MemoryApi (memory_api.h).");
  m.def("count_early_calls", &hostcall::CountEarlyCalls,
        "How many of these calls there are whose results nobody has taken.");
  m.def(
      "cuda_handler",
      [] { return nb::capsule(reinterpret_cast<void*>(&HostcallCudaHandler), capsules::kHandler); },
      "The same for programs on NVIDIA GPUs. Making it needs no GPU.");
  m.def(
      "load_cuda_driver", &hostcall::CudaDriver::Load, nb::arg("path"),
      "Has calls on GPUs use the driver in the file `path`, instead of the system's libcuda.so.1, "
      "which is loaded when it is first needed. Raises RuntimeError where that cannot be loaded.");
  m.def(
      "pool",
      [] {
        return nb::capsule(reinterpret_cast<void*>(&hostcall::RunOnPool), capsules::kRunOnPool);
      },
      "A pointer to RunOnPool (pool.h), for the modules that are built along with this one.");
  m.def("call_on_pool", &CallOnPool, nb::arg("function"),
        "Calls a function without arguments on a thread of the pool, at once. Raises RuntimeError "
        "when no thread can be started.");
  m.def("on_pool_thread", &hostcall::OnPoolThread,
        "Whether this thread is one of the pool's, all of which run callbacks.");
  m.def("stack_of", &hostcall::StackOf, nb::arg("thread"),
        "The frames of the thread with that identifier, and the lines that it has come to in them, "
        "the innermost first: what traceback.StackSummary.extract takes.");
  m.def(
      "ffi_api_version", [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "The FFI API version (major, minor) that the handler was built with.");
}
