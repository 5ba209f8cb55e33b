#include "settings.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "failure.h"

namespace hostcall::serving {
namespace {

constexpr size_t kCallsOfWorker = 16;

using Variable = std::function<const char*(const char*)>;

std::string TextOf(const Variable& variable, const char* name) {
  const char* text = variable(name);
  return text == nullptr ? "" : text;
}

// Returns the number in a variable, or `otherwise` if the variable is not set.
double NumberOf(const Variable& variable, const char* name, double otherwise, double least,
                double most) {
  const std::string text = TextOf(variable, name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end == '\0' && std::isfinite(number) && number >= least && number <= most) return number;
  std::ostringstream message;
  message << "hostcall: " << name << " is '" << text << "', and should be a number from " << least
          << " to " << most << ".";
  throw Failure(kFailedPrecondition, message.str());
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

Settings ReadSettings(const Variable& variable) {
  Settings settings;
  settings.sockets = SplitAtCommas(TextOf(variable, "HOSTCALL_WORKER_SOCKET"));
  settings.python = TextOf(variable, "HOSTCALL_WORKER_PYTHON");
  if (!settings.sockets.empty() && !settings.python.empty()) {
    throw Failure(kFailedPrecondition,
                  "hostcall: HOSTCALL_WORKER_SOCKET and HOSTCALL_WORKER_PYTHON are both set. The "
                  "first names workers that run already, the second starts some. Set one.");
  }
  constexpr double kYear = 3e7;
  settings.workers = NumberOf(variable, "HOSTCALL_WORKERS", 1, 1, 64);
  const size_t workers = settings.python.empty() ? settings.sockets.size() : settings.workers;
  settings.calls = NumberOf(variable, "HOSTCALL_WORKER_CALLS", kCallsOfWorker * workers, 1, 1024);
  settings.queue = NumberOf(variable, "HOSTCALL_WORKER_QUEUE", settings.queue, 0, 1e6);
  settings.timeout = NumberOf(variable, "HOSTCALL_WORKER_TIMEOUT", settings.timeout, 0.001, kYear);
  settings.start_timeout =
      NumberOf(variable, "HOSTCALL_WORKER_START", settings.start_timeout, 0.001, kYear);
  settings.bytes = NumberOf(variable, "HOSTCALL_WORKER_BYTES", settings.bytes, 4096, 1e15);
  return settings;
}

}  // namespace hostcall::serving
