// Errors of callbacks in partitioned functions, as a user reads them.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hostcall {

// The error of a callback, from which `AsRaised` makes out what was raised.
absl::Status WithOwnText(absl::Status status);

// An error of a function without what TensorFlow adds to it: the name of the function, which the
// user never gave it; and, where the function runs on several devices, a list that has the same
// error for each, and no more than 8 KiB.
absl::Status AsRaised(const absl::Status& status, const std::string& function);

// The error of a node, in a function that users know by that name: TensorFlow then tells the lines
// that have made the node. Errors of callbacks tell theirs themselves.
absl::Status InFunction(const absl::Status& status, const std::string& function);

}  // namespace hostcall
