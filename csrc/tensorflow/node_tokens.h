// Tokens that order the nodes of a program that have side effects.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hostcall_xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/side_effect_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/statusor.h"
#include "xla/hlo/builder/xla_builder.h"

namespace hostcall {

// Tokens of a node, as its attributes name them. Rewriting a function sets these. They are absent
// if XLA compiles without asking for kernels (get_compiler_ir), which only shows a program and does
// not run it.
class NodeTokens {
 public:
  absl::Status Read(tensorflow::OpKernelConstruction* ctx) {
    if (!ctx->GetAttr(tensorflow::kXlaTokenInputNodesAttrName, &inputs_).ok()) {
      return absl::OkStatus();
    }
    return ctx->GetAttr(tensorflow::kXlaOriginalOutsideCompilationNodeName, &name_);
  }

  bool empty() const { return inputs_.empty(); }

  // Returns the token of the nodes that come before this one.
  absl::StatusOr<xla::XlaOp> Before(tensorflow::XlaOpKernelContext* ctx) const {
    std::vector<xla::XlaOp> tokens;
    for (const std::string& node : inputs_) {
      TF_ASSIGN_OR_RETURN(tokens.emplace_back(), ctx->compiler()->GetNodeToken(node));
    }
    return tokens.size() == 1 ? tokens[0] : xla::AfterAll(ctx->builder(), tokens);
  }

  // Sets the token of this node, for the nodes that come after it.
  absl::Status SetAfter(tensorflow::XlaOpKernelContext* ctx, xla::XlaOp token) const {
    return ctx->compiler()->SetNodeToken(name_, token);
  }

 private:
  std::vector<std::string> inputs_;
  std::string name_;
};

}  // namespace hostcall
