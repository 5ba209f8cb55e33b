#include "reports.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "failure.h"

namespace ffi = xla::ffi;

namespace hostcall {
namespace {

// A report has a status code, the number of a process, and a message, which zeros follow.
using Process = int32_t;
constexpr size_t kProcess = 1, kText = kProcess + sizeof(Process), kLeastReport = 256;

constexpr std::string_view kLeftOut = "\n...\n";

// Returns whether a byte of UTF-8 continues a character.
bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Returns the message, or its beginning and its end, in whole characters, if it has more bytes.
std::string Shortened(const std::string& message, size_t size) {
  if (message.size() <= size) return message;
  size_t end = message.size() - size / 4, begin = size - size / 4 - kLeftOut.size();
  while (begin > 0 && Continues(message[begin])) --begin;
  while (end < message.size() && Continues(message[end])) ++end;
  return message.substr(0, begin) + std::string(kLeftOut) + message.substr(end);
}

// Returns the message with other words for the numbers of exceptions: `_errors.py` has them.
std::string WithoutNumbers(std::string message, const std::string& where) {
  constexpr std::string_view kMark = "[hostcall error ";
  for (size_t at = 0; (at = message.find(kMark, at)) != std::string::npos;) {
    const size_t end = message.find(']', at);
    if (end == std::string::npos) return message.substr(0, at);
    message.replace(at, end + 1 - at, where);
  }
  return message;
}

}  // namespace

Report ReportIn(const Buffer& buffer) {
  if (buffer.dtype != ffi::DataType::U8 || buffer.dims.size() != 1 ||
      buffer.dims[0] < static_cast<int64_t>(kLeastReport) || buffer.data == nullptr) {
    throw Failure::Malformed();
  }
  return {static_cast<uint8_t*>(buffer.data), static_cast<size_t>(buffer.dims[0])};
}

void Write(const Report& report, const std::optional<ffi::Error>& error, int64_t process) {
  std::memset(report.data, 0, report.size);
  if (!error.has_value()) return;
  const auto number = static_cast<Process>(process);
  const std::string text = Shortened(error->message(), report.size - kText);
  report.data[0] = static_cast<uint8_t>(error->errc().value_or(ffi::ErrorCode::kUnknown));
  std::memcpy(report.data + kProcess, &number, sizeof(number));
  std::memcpy(report.data + kText, text.data(), text.size());
}

std::optional<ffi::Error> Read(const Report& report, int64_t process) {
  if (report.data[0] == 0) return std::nullopt;
  Process from;
  std::memcpy(&from, report.data + kProcess, sizeof(from));
  const auto* text = reinterpret_cast<const char*>(report.data + kText);
  std::string message(text, strnlen(text, report.size - kText));
  if (from != process) {
    const std::string name = "process " + std::to_string(from);
    message = WithoutNumbers(std::move(message), "[the exception itself is in " + name + "]");
  }
  return ffi::Error(static_cast<ffi::ErrorCode>(report.data[0]), std::move(message));
}

}  // namespace hostcall
