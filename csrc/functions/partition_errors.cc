#include "partition_errors.h"

#include <optional>
#include <string_view>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/platform/errors.h"

namespace hostcall {
namespace {

// Payload that TensorFlow keeps when it puts errors into a list.
constexpr char kText[] = "hostcall/text";

constexpr char kSeveral[] = " root error(s) found.";

}  // namespace

absl::Status WithOwnText(absl::Status status) {
  if (!status.ok()) status.SetPayload(kText, absl::Cord(status.message()));
  return status;
}

absl::Status AsRaised(const absl::Status& status, const std::string& function) {
  const std::string prefix =
      absl::StrCat(tensorflow::errors::FormatFunctionForError(function), " ");
  std::string_view message = status.message();
  while (absl::ConsumePrefix(&message, prefix)) {
  }
  const std::string_view first_line = message.substr(0, message.find('\n'));
  const std::optional<absl::Cord> text = status.GetPayload(kText);
  absl::Status raised =
      text.has_value() && absl::EndsWith(first_line, kSeveral)
          ? tensorflow::errors::CreateWithUpdatedMessage(status, std::string(*text))
          : tensorflow::errors::CreateWithUpdatedMessage(status, message);
  raised.ErasePayload(kText);
  return raised;
}

absl::Status InFunction(const absl::Status& status, const std::string& function) {
  const std::string_view message = status.message();
  const bool is_of_callback = absl::StrContains(message, "[hostcall error ") ||
                              absl::StrContains(message, "Traceback (most recent call last)");
  if (is_of_callback || !absl::StrContains(message, "{{node ")) return status;
  return tensorflow::errors::CreateWithUpdatedMessage(
      status, absl::StrCat(tensorflow::errors::FormatFunctionForError(function), " ", message));
}

}  // namespace hostcall
