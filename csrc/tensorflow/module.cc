// The extension module `hostcall._tensorflow`. Importing it registers the XLA kernels of the script
// ops and the graph pass.
#include "module.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "compat/xla_api.h"
#include "functions/reachable.h"
#include "launch.h"
#include "runtime/capsules.h"
#include "tsl/profiler/lib/traceme.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/profiler/backends/cpu/traceme_recorder.h"

namespace nb = nanobind;
namespace capsules = hostcall::capsules;

namespace {

void RegisterHandler(XLA_FFI_Handler* handler, const std::string& name,
                     const std::string& platform = "Host") {
  const nb::object error = hostcall::TakeText(hostcall::compat::Register(handler, name, platform));
  if (error.is_valid()) throw nb::import_error(nb::cast<std::string>(error).c_str());
}

// Asks a handler for its version, as XLA does when it registers one.
nb::tuple DescribeHandler(const nb::capsule& handler) {
  const char* name = handler.name();
  if (name != nullptr && std::string_view(name) != capsules::kHandler) {
    throw nb::type_error(name);
  }
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base = {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata,
                              nullptr};
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = xla::ffi::GetXlaFfiApi();
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.extension_start = &extension.extension_base;
  const nb::object error =
      hostcall::TakeText(reinterpret_cast<XLA_FFI_Handler*>(handler.data())(&frame));
  if (error.is_valid()) throw nb::value_error(nb::cast<std::string>(error).c_str());
  const XLA_FFI_Api_Version& version = metadata.api_version;
  return nb::make_tuple(reinterpret_cast<uintptr_t>(handler.data()), version.major_version,
                        version.minor_version,
                        metadata.state_type_id.type_id != XLA_FFI_UNKNOWN_TYPE_ID.type_id);
}

const hostcall::HostApi& TensorFlowHost() {
  using tsl::profiler::TraceMe;
  static const hostcall::HostApi api = {
      hostcall::kEagerTensors,
      hostcall::kBufferProvider,
      {&tsl::profiler::internal::g_trace_level,
       [](const std::string& name) { return TraceMe::ActivityStart(name); },
       [](int64_t begun) { TraceMe::ActivityEnd(begun); }},
      {xla::ffi::GetXlaFfiApi(), &hostcall::FindRun},
  };
  return api;
}

}  // namespace

NB_MODULE(_tensorflow, m) {
  m.doc() = "hostcall's bindings to TensorFlow: kernels, kernel creator, graph pass.";
  hostcall::DefinePythonHooks(m);
  hostcall::DefineCompilations(m);
  hostcall::DefineLaunches(m);
  hostcall::DefineStarters(m);
  hostcall::DefineHostScriptOp(m);
  hostcall::DefineEagerTensors(m);
  hostcall::DefinePlainCalls(m);
  hostcall::DefineBufferProvider(m);
  hostcall::DefineRegionShapes(m);
  hostcall::DefineRelays(m);
  m.def(
      "register_handler",
      [](const nb::capsule& handler, const std::string& name, const std::string& platform) {
        RegisterHandler(
            reinterpret_cast<XLA_FFI_Handler*>(capsules::Get(handler, capsules::kHandler)), name,
            platform);
      },
      nb::arg("handler"), nb::arg("name"), nb::arg("platform") = "Host",
      "Register an FFI handler with TensorFlow's XLA, as the custom call target of that name in "
      "programs for a platform, such as CUDA. Needs no device of it. Raises ImportError when XLA "
      "refuses it, as it does a second handler of the name.");
  m.def(
      "register_own_handlers",
      [] {
        RegisterHandler(&HostcallRegionHandler, "hostcall_region");
        RegisterHandler(&HostcallOrderHandler, "hostcall_order");
        RegisterHandler(&HostcallWhereHandler, "hostcall_where");
      },
      "Register the handlers of regions, barriers and masks. Raises ImportError when XLA refuses "
      "one.");
  m.def("describe_handler", &DescribeHandler, nb::arg("handler"),
        "Return the address of an FFI handler in a capsule, the FFI API version (major, minor) "
        "that it was built with, and whether it makes a state. Raises ValueError when it does not "
        "say so, and TypeError, with the name, when the capsule has one that is not of handlers.");
  m.def(
      "ffi_api_version",
      [] {
        const XLA_FFI_Api_Version& version = xla::ffi::GetXlaFfiApi()->api_version;
        return std::pair(version.major_version, version.minor_version);
      },
      "Return the FFI version of TensorFlow's XLA.");
  m.def(
      "host_api", [] { return nb::capsule(&TensorFlowHost(), capsules::kHostApi); },
      "Return TensorFlow's side of the runtime, a pointer to a HostApi (runtime/host_api.h).");
  m.def(
      "install",
      [](const nb::capsule& api) {
        hostcall::runtime =
            static_cast<const hostcall::RuntimeApi*>(capsules::Get(api, capsules::kRuntimeApi));
      },
      nb::arg("api"), "Set the runtime, a pointer to a RuntimeApi (runtime/host_api.h).");
  m.def("set_ops_at_risk", &hostcall::SetOpsAtRisk, nb::arg("ops"),
        "Set the ops that XLA may compile to something else than TensorFlow runs.");
  m.def(
      "set_examined",
      [](const std::string& functions) {
        using hostcall::Examined;
        hostcall::SetExamined(functions == "all"        ? Examined::kAll
                              : functions == "clusters" ? Examined::kClusters
                                                        : Examined::kNone);
      },
      nb::arg("functions"),
      "Set the functions that are searched for them, besides those that call Python: \"none\", "
      "\"clusters\" or \"all\".");
  m.def("install_kernel_creator", &hostcall::InstallKernelCreator,
        "Put hostcall between TensorFlow and the kernels of must-compile functions.");
}
