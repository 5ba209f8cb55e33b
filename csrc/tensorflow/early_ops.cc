// The ops that stand for one call which goes on while its program does: see runtime/early_calls.h.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace hostcall {
namespace {

// Both take what the script op takes, and have its attributes, since its results' shapes follow
// from these. `script_op` is its name, `kind` its op. `awaited` are a handle and values that only
// say what comes first. One that begins a call is stateful, so that nobody takes two of them for
// one.
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
