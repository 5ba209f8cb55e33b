// Flags that Python sets on a function whose kernel is created: attributes that are true.
#pragma once

#include <string>

#include "tensorflow/core/framework/function.h"

namespace hostcall {

inline bool HasFlag(const tensorflow::FunctionDef& function, const std::string& name) {
  const auto attr = function.attr().find(name);
  return attr != function.attr().end() && attr->second.b();
}

}  // namespace hostcall
