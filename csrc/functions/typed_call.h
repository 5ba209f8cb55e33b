// A custom call that XLA answers by a handler of its FFI.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"

namespace hostcall {

// Emits the call. `result` has layouts if it holds arrays. `attributes` is the text of a dictionary
// of MLIR, or nothing.
inline xla::XlaOp TypedCall(xla::XlaBuilder* builder, const std::string& target,
                            absl::Span<const xla::XlaOp> operands, const xla::Shape& result,
                            const std::string& attributes, bool has_side_effect) {
  return xla::CustomCall(builder, target, operands, result, attributes, has_side_effect,
                         /*output_operand_aliasing=*/{}, /*literal=*/nullptr,
                         xla::CustomCallSchedule::SCHEDULE_NONE,
                         xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

}  // namespace hostcall
