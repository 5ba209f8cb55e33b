// Native code of libraries, which are loaded from the folders that the operator allows.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/native_function.h"
#include "token.h"

namespace hostcall::serving {

// Colons stand between the folders in it. A library is looked up by the path that the graph has,
// and then by its name in each folder.
inline constexpr char kNativePath[] = "HOSTCALL_NATIVE_PATH";

// The code that a graph names, whose library stays loaded. Nothing is loaded from elsewhere than
// the allowed folders, symbolic links and what a library itself is linked to included.
absl::StatusOr<std::shared_ptr<NativeFunction>> LoadNative(const NativeTarget& target,
                                                           const std::string& label);

}  // namespace hostcall::serving
