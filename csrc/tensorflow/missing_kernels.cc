#include "missing_kernels.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "functions/call_kernel.h"
#include "functions/reachable.h"
#include "python_hooks.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/graph/graph_debug_info_builder.h"

namespace hostcall {
namespace {

using tensorflow::FunctionLibraryDefinition;

// Returns where the user's code has made a node, in TensorFlow's format; "" if it is unknown.
std::string CreatedAt(const MissingKernel& missing, const FunctionLibraryDefinition& library) {
  const auto record = library.FindRecord(missing.function);
  if (record == nullptr) return "";
  const auto trace = record->stack_traces().find(missing.node);
  if (trace == record->stack_traces().end() || trace->second == nullptr) return "";
  tensorflow::AbstractStackTrace::TracePrintingOptions options;
  options.drop_internal_frames = true;
  return absl::StrCat("\nThe op is created at:\n", trace->second->ToString(options));
}

}  // namespace

std::string RefusalForMissingKernels(const tensorflow::FunctionLibraryRuntime& runtime,
                                     const std::string& function) {
  const tensorflow::Device* device = runtime.device();
  if (device == nullptr) return "";
  const FunctionLibraryDefinition& library = *runtime.GetFunctionLibraryDefinition();
  if (!MayLackXlaKernel(function, library, device->device_type())) return "";
  // If Python cannot tell, XLA will.
  const auto found =
      MissingKernels(SerializedReachable(function, library), function, device->name());
  if (!found.ok() || found->empty()) return "";
  const auto in_words = [](std::string* out, const MissingKernel& missing) {
    absl::StrAppend(out, missing.op, " (No registered '", missing.op, "' OpKernel){{node ",
                    missing.node, "}}");
  };
  return absl::StrCat("Detected unsupported operations in ", function, ": ",
                      absl::StrJoin(*found, ", ", in_words), CreatedAt(found->front(), library));
}

}  // namespace hostcall
