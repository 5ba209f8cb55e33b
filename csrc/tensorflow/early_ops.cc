// Ops of one call that goes on while its program does: see runtime/early_calls.h.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace hostcall {
namespace {

// Both ops take the inputs and attributes of the script op, from which its results' shapes follow.
// `script_op` is its name, `kind` its op. `awaited` are a handle, and values that only set the
// order. The op that begins a call is stateful, so that two of them are never merged.
#define HOSTCALL_SHARED(name)        \
  REGISTER_OP(name)                  \
      .Input("input: Tin")           \
      .Attr("token: string")         \
      .Attr("script_op: string")     \
      .Attr("kind: string")          \
      .Attr("Tin: list(type) >= 0")  \
      .Attr("Tout: list(type) >= 0") \
      .SetShapeFn(tensorflow::shape_inference::UnknownShape)

HOSTCALL_SHARED("HostcallStart").Output("handle: int64").SetIsStateful();
HOSTCALL_SHARED("HostcallDone")
    .Input("awaited: Tawaited")
    .Output("output: Tout")
    .Attr("Tawaited: list(type) >= 1");

REGISTER_OP("HostcallGate")
    .Input("awaited: Tawaited")
    .Output("gate: int64")
    .Attr("Tawaited: list(type) >= 0")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

}  // namespace
}  // namespace hostcall
