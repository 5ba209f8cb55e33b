// libhostcall_serving.so: lets a process without Python run saved graphs that call host functions.
// TF_LoadLibrary, tf.load_op_library and LD_PRELOAD load it.
#include "absl/log/log.h"
#include "compat/xla_api.h"
#include "kernels.h"
#include "runtime/handler.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hostcall::serving {
namespace {

bool RegisterHandlers() {
  return compat::Register(&HostcallServingHandler, kTarget) == nullptr &&
         compat::Register(&HostcallRaiseHandler, kRaiseTarget) == nullptr &&
         compat::Register(&HostcallAnyHandler, kAnyTarget) == nullptr;
}

// Returns true if PyFunc has a kernel already: two for one op would make each call an error.
bool IsThereAnother() { return tensorflow::GetRegisteredKernelsForOp("PyFunc").kernel_size() > 0; }

bool Load() {
  if (IsThereAnother()) {
    LOG(WARNING) << "hostcall: this process can call host functions already: it has Python's "
                    "TensorFlow, or libhostcall_serving.so was loaded before. Nothing was changed. "
                    "In Python, saved models need no more than:\n\n    import hostcall\n";
    return false;
  }
  if (!RegisterHandlers()) {
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
