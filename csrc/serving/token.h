// The qualified tokens of saved graphs (plugin/hostcall/_saving/tokens.py), as far as they matter
// where there is no Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/native_code.h"

namespace hostcall::serving {

// A size of a result: a number, or where that is -1 the size of an input's dimension.
struct Size {
  int64_t size = -1;
  int input = 0;
  int dimension = 0;
};

// Native code: where it is, and what it takes.
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
  std::string label;  // what messages call the function, and where it was called
  bool pure = false;
  std::optional<NativeTarget> native;
  // Of each result, where tracing knew all of the shape; not of the hidden one of a py_function.
  std::vector<std::optional<std::vector<int64_t>>> static_shapes;
};

// Trusts nothing in the text, which comes out of a file.
absl::StatusOr<Token> ParseToken(const std::string& text);

}  // namespace hostcall::serving
