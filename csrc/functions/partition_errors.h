// Errors of callbacks in partitioned functions, as a user reads them.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hostcall {

// Stores a callback error's text in a payload, from which `AsRaised` restores it.
absl::Status WithOwnText(absl::Status status);

// Strips the text that TensorFlow adds to an error of a function: the function's name, which the
// user never gave it; and, if it runs on several devices, a list that repeats the error for each,
// cut off at 8 KiB.
absl::Status AsRaised(const absl::Status& status, const std::string& function);

// Adds to a node's error the name by which users know its function: TensorFlow then names the lines
// that made the node. Errors of callbacks name their own lines.
absl::Status InFunction(const absl::Status& status, const std::string& function);

}  // namespace hostcall
