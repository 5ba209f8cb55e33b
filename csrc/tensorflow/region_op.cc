// Ops that stand for a region in a compiled function.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace hostcall {
namespace {

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
