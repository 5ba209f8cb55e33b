// Native code of libraries, loaded from the folders that the operator allows.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/native_function.h"
#include "token.h"

namespace hostcall::serving {

// Environment variable of the allowed folders, separated by colons. A library is looked up by its
// path in the graph, then by its name in each folder.
inline constexpr char kNativePath[] = "HOSTCALL_NATIVE_PATH";

// Loads the code that a graph names; its library stays loaded. The library must lie in an allowed
// folder after symbolic links are resolved, and must define the symbol itself.
absl::StatusOr<std::shared_ptr<NativeFunction>> LoadNative(const NativeTarget& target,
                                                           const std::string& label);

}  // namespace hostcall::serving
