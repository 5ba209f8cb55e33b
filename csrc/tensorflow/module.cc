// The extension module `hostcall._tensorflow`. Importing it registers the XLA kernels of the script
// ops and the graph pass.
#include <nanobind/nanobind.h>

#include "eager_tensors.h"
#include "host_script_op.h"
#include "kernel_creator.h"
#include "launch_scope.h"
#include "lending.h"
#include "lowering.h"
#include "profiler.h"
#include "xla/ffi/api/c_api.h"

// From xla/ffi/ffi_api.h, which cannot be included: the wheel lacks the MLIR headers that it needs.
namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();
}

namespace nb = nanobind;

namespace {

void RegisterHandler(const nb::capsule& handler) {
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {"hostcall", 8};
  args.platform = {"Host", 4};
  args.bundle.execute = reinterpret_cast<XLA_FFI_Handler*>(handler.data());
  const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
  XLA_FFI_Error* error = api->XLA_FFI_Handler_Register(&args);
  if (error == nullptr) return;
  XLA_FFI_Error_GetMessage_Args message{};
  message.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  message.error = error;
  api->XLA_FFI_Error_GetMessage(&message);
  nb::str text(message.message);
  XLA_FFI_Error_Destroy_Args destroy{};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  throw nb::import_error(text.c_str());
}

}  // namespace

NB_MODULE(_tensorflow, m) {
  m.doc() = "hostcall's glue to TensorFlow: kernels, kernel creator, graph pass.";
  hostcall::DefineLowering(m);
  hostcall::DefineLaunchScope(m);
  hostcall::DefineHostScriptOp(m);
  hostcall::DefineEagerTensors(m);
  hostcall::DefineProfiler(m);
  hostcall::DefineLending(m);
  m.def("register_handler", &RegisterHandler, nb::arg("handler"),
        "Registers the FFI handler with TensorFlow's XLA. Raises ImportError when XLA refuses it.");
  m.def("install_kernel_creator", &hostcall::InstallKernelCreator,
        "Puts hostcall between TensorFlow and the kernels of must-compile functions.");
}
