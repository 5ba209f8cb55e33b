// The custom call by which compiled programs call the functions of a saved graph.
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "callee.h"
#include "kernels.h"
#include "runtime/failure.h"
#include "runtime/frame.h"
#include "runtime/native_code.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace hostcall::serving {
namespace {

using Types = ffi::Span<const int32_t>;

std::vector<int64_t> ShapeOf(const XLA_FFI_Buffer& buffer) {
  return {buffer.dims, buffer.dims + buffer.rank};
}

// Result buffers of a program, whose shapes were fixed at compile time.
class ResultBuffers : public ResultSink {
 public:
  explicit ResultBuffers(const RawBuffers& buffers) : buffers_(buffers) {}

  char* Allocate(size_t index, const std::vector<int64_t>& shape, size_t bytes) override {
    static char nothing = 0;
    const std::vector<int64_t> compiled = ShapeOf(*buffers_[index]);
    if (shape != compiled || bytes != BytesOf(*buffers_[index])) {
      complaint_ =
          absl::StrCat("result ", index, " is of shape [", absl::StrJoin(shape, ", "),
                       "], and the program was compiled for [", absl::StrJoin(compiled, ", "), "]");
      return nullptr;
    }
    return bytes == 0 ? &nothing : static_cast<char*>(buffers_[index]->data);
  }

  bool AllocateStrings(size_t, const std::vector<int64_t>&) override { return false; }
  void SetString(size_t, size_t, std::string_view) override {}

  // Returns the problem with a shape, or "".
  const std::string& complaint() const { return complaint_; }

 private:
  const RawBuffers& buffers_;
  std::string complaint_;
};

Argument ToArgument(const XLA_FFI_Buffer& buffer, int32_t dtype) {
  const std::string_view bytes(static_cast<const char*>(buffer.data), BytesOf(buffer));
  return {dtype, ShapeOf(buffer), bytes, {}};
}

// Makes a Failure that is not mistaken for a refusal to compile, by its first word and code.
Failure FailureOf(const Outcome& outcome) {
  const auto code = static_cast<ffi::ErrorCode>(CodeOf(outcome));
  const bool is_like_refusal =
      code == ffi::ErrorCode::kUnimplemented && absl::StartsWith(outcome.message, "hostcall");
  return {code, absl::StrCat(is_like_refusal ? "A call failed: " : "", outcome.message)};
}

// Has a worker call the function. Throws Failure.
void CallPython(const Callee& callee, const NativeFrame& frame, std::string_view op,
                Types argument_types, Types result_types) {
  if (frame.operands.size() != argument_types.size() ||
      frame.results.size() != result_types.size()) {
    throw Failure::Malformed();
  }
  WorkerCall call{op, callee.text, {}, {result_types.begin(), result_types.end()}};
  for (size_t i = 0; i < frame.operands.size(); ++i) {
    call.arguments.push_back(ToArgument(*frame.operands[i], argument_types[i]));
  }
  ResultBuffers results(frame.results);
  const Outcome outcome = CallWorker(call, results);
  if (!results.complaint().empty()) {
    throw Failure::InvalidArgument(
        absl::StrCat("hostcall: ", results.complaint(), ". This is ", callee.token.label, "."));
  }
  if (!outcome.ok()) throw FailureOf(outcome);
}

NativeOutcome Handle(XLA_FFI_CallFrame& call) {
  std::string_view op, token;
  Types argument_types, result_types;
  AttributeReader(call.attrs)
      .Take("argument_types", argument_types)
      .Take("op", op)
      .Take("result_types", result_types)
      .Take("token", token)
      .End();
  const absl::StatusOr<const Callee*> callee = FindCallee(std::string(token));
  if (!callee.ok()) {
    const auto code = static_cast<ffi::ErrorCode>(callee.status().code());
    throw Failure(code, std::string(callee.status().message()));
  }
  const NativeFrame frame(call);
  if ((*callee)->native != nullptr) return (*callee)->native->Call(frame);
  CallPython(**callee, frame, op, argument_types, result_types);
  return {};
}

}  // namespace
}  // namespace hostcall::serving

extern "C" XLA_FFI_Error* HostcallServingHandler(XLA_FFI_CallFrame* frame) {
  return hostcall::Answer(frame, hostcall::serving::Handle);
}
