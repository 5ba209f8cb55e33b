#include "callee.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "native_library.h"

namespace hostcall::serving {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Callee>> callees;
};

// Leaked: threads of XLA's may look up while the process exits.
Table& GlobalTable() {
  static auto* table = new Table();
  return *table;
}

absl::StatusOr<Callee> MakeCallee(const std::string& text) {
  absl::StatusOr<Token> token = ParseToken(text);
  if (!token.ok()) return token.status();
  Callee callee{text, *std::move(token), nullptr};
  if (!callee.token.native.has_value()) return callee;
  auto native = LoadNative(*callee.token.native, callee.token.label);
  if (!native.ok()) return native.status();
  callee.native = *std::move(native);
  return callee;
}

// Returns a size, taken from the inputs if need be; -1 if they lack its dimension.
int64_t SizeOf(const Size& size, const Shapes& inputs) {
  if (size.size >= 0) return size.size;
  const auto input = static_cast<size_t>(size.input);
  const auto dimension = static_cast<size_t>(size.dimension);
  if (input >= inputs.size() || dimension >= inputs[input].size()) return -1;
  return inputs[input][dimension];
}

// Checks shapes against those that tracing assumed, since other code may rely on them.
absl::Status CheckTraced(const Token& token, const Shapes& shapes) {
  for (size_t i = 0; i < std::min(shapes.size(), token.static_shapes.size()); ++i) {
    const auto& traced = token.static_shapes[i];
    if (!traced.has_value() || *traced == shapes[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "hostcall: result ", i, " of the native function ", token.label, " is of shape [",
        absl::StrJoin(shapes[i], ", "), "] for these arguments, and the graph was traced with [",
        absl::StrJoin(*traced, ", "), "]."));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Shapes> Callee::NativeShapes(const Shapes& inputs) const {
  const auto& results = token.native->results;
  if (!results.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "hostcall: the shapes of the results of the native function ", token.label,
        " are not known without Python. Each size has to be a number, or that of an input's "
        "dimension, whose rank is known. Declare that before the model is saved:\n\n    "
        "hostcall.native(function, result=lambda x: tf.TensorSpec(x.shape, x.dtype))"));
  }
  Shapes shapes;
  for (const std::vector<Size>& sizes : *results) {
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const Size& size : sizes) {
      shape.push_back(SizeOf(size, inputs));
      if (shape.back() >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "hostcall: the native function ", token.label, " has a result of the size of dimension ",
          size.dimension, " of input ", size.input, ", and there is no such dimension."));
    }
  }
  if (absl::Status checked = CheckTraced(token, shapes); !checked.ok()) return checked;
  return shapes;
}

absl::StatusOr<const Callee*> FindCallee(const std::string& token) {
  Table& table = GlobalTable();
  {
    std::lock_guard<std::mutex> lock(table.mutex);
    const auto found = table.callees.find(token);
    if (found != table.callees.end()) return found->second.get();
  }
  // Load without the lock: a library may run its own code when it is loaded.
  absl::StatusOr<Callee> made = MakeCallee(token);
  if (!made.ok()) return made.status();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto& kept = table.callees[token];
  if (kept == nullptr) kept = std::make_unique<const Callee>(*std::move(made));
  return kept.get();
}

}  // namespace hostcall::serving
