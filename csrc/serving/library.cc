// libhostcall_serving.so: lets a process without Python run saved graphs that call host functions.
// TF_LoadLibrary, tf.load_op_library and LD_PRELOAD load it.
#include "absl/log/log.h"
#include "handler.h"
#include "kernel_creator.h"
#include "plain_kernel.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/ffi/api/c_api.h"
#include "xla_kernel.h"

namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();  // from xla/ffi/ffi.h, which has another FFI of the same names
}  // namespace xla::ffi

namespace hostcall::serving {
namespace {

// Returns true if PyFunc has a kernel already: two for one op would make each call an error.
bool IsThereAnother() { return tensorflow::GetRegisteredKernelsForOp("PyFunc").kernel_size() > 0; }

bool RegisterHandler() {
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {kTarget, sizeof(kTarget) - 1};
  args.platform = {"Host", 4};
  args.bundle.execute = &HostcallServingHandler;
  return xla::ffi::GetXlaFfiApi()->XLA_FFI_Handler_Register(&args) == nullptr;
}

bool Load() {
  if (IsThereAnother()) {
    LOG(WARNING) << "hostcall: this process can call host functions already: it has Python's "
                    "TensorFlow, or libhostcall_serving.so was loaded before. Nothing was changed. "
                    "In Python, saved models need no more than:\n\n    import hostcall\n";
    return false;
  }
  if (!RegisterHandler()) {
    LOG(ERROR) << "hostcall: this process has another version of XLA than libhostcall_serving.so "
                  "was built with. Saved graphs cannot call host functions here.";
    return false;
  }
  RegisterPlainKernels();
  RegisterXlaKernels();
  InstallKernelCreator();
  return true;
}

const bool loaded = Load();

}  // namespace
}  // namespace hostcall::serving
