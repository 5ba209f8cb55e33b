// Ops of compiled functions: those of a call that goes on while its program does
// (runtime/early_calls.h), and those that stand for a region.
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

// `scope` is the address of the launch's RegionScope. References, which are int64 scalars, stand
// for values that XLA cannot hold. There are two ops, since only a stateful one stays if nothing
// uses its results.
#define HOSTCALL_REGISTER_REGION(name) \
  REGISTER_OP(name)                    \
      .Input("scope: int64")           \
      .Input("inputs: Tin")            \
      .Output("outputs: Tout")         \
      .Attr("Tin: list(type) >= 0")    \
      .Attr("Tout: list(type) >= 0")   \
      .Attr("region: string")          \
      .Attr("index: int")              \
      .SetShapeFn(tensorflow::shape_inference::UnknownShape)

HOSTCALL_REGISTER_REGION("HostcallRegion").SetIsStateful();
HOSTCALL_REGISTER_REGION("HostcallStatelessRegion");

}  // namespace
}  // namespace hostcall
