// A header that protobuf lacks before version 4, in TensorFlow 2.19 and before.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/util/json_util.h"

namespace google::protobuf::json {

inline absl::Status JsonStringToMessage(std::string_view text, Message* message) {
  const auto status = util::JsonStringToMessage(std::string(text), message);
  return status.ok() ? absl::OkStatus() : absl::InvalidArgumentError(status.ToString());
}

}  // namespace google::protobuf::json
