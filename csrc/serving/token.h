// Qualified tokens of saved graphs (plugin/hostcall/_saved/tokens.py): the parts that matter
// without Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/native_code.h"

namespace hostcall::serving {

// A result's size: a number, or if that is -1, the size of an input's dimension.
struct Size {
  int64_t size = -1;
  int input = 0;
  int dimension = 0;
};

// Native code: its place and its parameters.
struct NativeTarget {
  std::string library;
  std::string symbol;
  bool is_handler = false;
  size_t arguments = 0;
  bool takes_sizes = false;
  bool returns_status = false;
  std::vector<NativeAttribute> attributes;
  std::optional<std::vector<std::vector<Size>>> results;
};

struct Token {
  std::string label;  // for messages: the function, and the place of the call
  bool pure = false;
  std::optional<NativeTarget> native;
  // Shape of each result, if tracing knew all of it; not of a py_function's hidden result.
  std::vector<std::optional<std::vector<int64_t>>> static_shapes;
};

// Parses a token. Trusts nothing in the text, which comes from a file.
absl::StatusOr<Token> ParseToken(const std::string& text);

}  // namespace hostcall::serving
