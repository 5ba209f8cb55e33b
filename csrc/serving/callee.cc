#include "callee.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace hostcall::serving {
namespace {

// Environment variable of the folders that native code may lie in, separated by colons. A library
// is looked up by its path in the graph, then by its name in each folder.
constexpr char kNativePath[] = "HOSTCALL_NATIVE_PATH";

// Returns the path without symbolic links, or nullopt if the file does not exist.
std::optional<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  if (real == nullptr) return std::nullopt;
  return std::string(real.get());
}

std::vector<std::string> AllowedFolders() {
  const char* value = getenv(kNativePath);
  std::vector<std::string> folders;
  for (const std::string_view folder : absl::StrSplit(value == nullptr ? "" : value, ':')) {
    if (folder.empty()) continue;
    if (auto real = RealPath(std::string(folder))) folders.push_back(*std::move(real));
  }
  return folders;
}

bool LiesIn(const std::string& path, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (absl::StartsWith(path, folder == "/" ? folder : absl::StrCat(folder, "/"))) return true;
  }
  return false;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Returns the library's file, or nullopt if no allowed folder has it.
std::optional<std::string> FindLibrary(const std::string& library) {
  const std::vector<std::string> folders = AllowedFolders();
  std::vector<std::string> candidates;
  if (absl::StrContains(library, '/')) candidates.push_back(library);
  for (const std::string& folder : folders) {
    candidates.push_back(absl::StrCat(folder, "/", BaseName(library)));
  }
  for (const std::string& candidate : candidates) {
    if (auto real = RealPath(candidate); real.has_value() && LiesIn(*real, folders)) return real;
  }
  return std::nullopt;
}

std::string Subject(const NativeTarget& target, const std::string& label) {
  return absl::StrCat("hostcall: the saved graph calls native code, the function ", target.symbol,
                      " of ", target.library, " (", label, "), and ");
}

absl::Status NotAllowed(const NativeTarget& target, const std::string& label) {
  const std::string folder = absl::StrContains(target.library, '/')
                                 ? target.library.substr(0, target.library.rfind('/'))
                                 : "/folder/of/it";
  const std::vector<std::string> folders = AllowedFolders();
  return absl::FailedPreconditionError(absl::StrCat(
      Subject(target, label),
      folders.empty()
          ? "no folder is allowed"
          : absl::StrCat("it lies in none of the allowed folders, ", absl::StrJoin(folders, ", ")),
      ". If you trust the file, start the process with the folder of the library, where that is "
      "on this machine:\n\n    export ",
      kNativePath, "=", folder));
}

absl::Status Unusable(const NativeTarget& target, const std::string& label, std::string_view why) {
  return absl::NotFoundError(absl::StrCat(Subject(target, label), why,
                                          ". Is it the library that the model was saved with?"));
}

// Returns true if the symbol is the library's own, not that of a library that it links to.
bool IsOwn(void* symbol, const std::string& path) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return false;
  return RealPath(info.dli_fname) == path;
}

// Loads the code that a graph names; its library stays loaded. The library must lie in an allowed
// folder after symbolic links are resolved, and must define the symbol itself.
absl::StatusOr<std::shared_ptr<NativeFunction>> LoadNative(const NativeTarget& target,
                                                           const std::string& label) {
  const std::optional<std::string> path = FindLibrary(target.library);
  if (!path.has_value()) return NotAllowed(target, label);
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) {
    return Unusable(target, label, absl::StrCat("it cannot be loaded: ", dlerror()));
  }
  void* symbol = dlsym(library, target.symbol.c_str());
  if (symbol == nullptr || !IsOwn(symbol, *path)) {
    return Unusable(target, label, absl::StrCat("there is no such function in ", *path));
  }
  const std::string name = absl::StrCat("the native function ", label);
  try {
    if (target.is_handler) return std::make_shared<FfiHandler>(name, symbol, target.attributes);
    return std::make_shared<CFunction>(name, symbol, target.arguments, target.takes_sizes,
                                       target.returns_status);
  } catch (const std::exception& error) {
    return Unusable(target, label, error.what());
  }
}

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Callee>> callees;
};

// Leaked: threads of XLA's may look up while the process exits.
Table& GlobalTable() {
  static auto* table = new Table();
  return *table;
}

absl::StatusOr<Callee> MakeCallee(const std::string& text) {
  TF_ASSIGN_OR_RETURN(Token token, ParseToken(text));
  Callee callee{text, std::move(token), nullptr};
  if (callee.token.native.has_value()) {
    TF_ASSIGN_OR_RETURN(callee.native, LoadNative(*callee.token.native, callee.token.label));
  }
  return callee;
}

// Returns a size, taken from the inputs if need be; -1 if they lack its dimension.
int64_t SizeOf(const Size& size, const Shapes& inputs) {
  if (size.size >= 0) return size.size;
  const auto input = static_cast<size_t>(size.input);
  const auto dimension = static_cast<size_t>(size.dimension);
  if (input >= inputs.size() || dimension >= inputs[input].size()) return -1;
  return inputs[input][dimension];
}

// Checks shapes against those that tracing assumed, since other code may rely on them.
absl::Status CheckTraced(const Token& token, const Shapes& shapes) {
  for (size_t i = 0; i < std::min(shapes.size(), token.static_shapes.size()); ++i) {
    const auto& traced = token.static_shapes[i];
    if (!traced.has_value() || *traced == shapes[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "hostcall: result ", i, " of the native function ", token.label, " is of shape [",
        absl::StrJoin(shapes[i], ", "), "] for these arguments, and the graph was traced with [",
        absl::StrJoin(*traced, ", "), "]."));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Shapes> Callee::NativeShapes(const Shapes& inputs) const {
  const auto& results = token.native->results;
  if (!results.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "hostcall: the shapes of the results of the native function ", token.label,
        " are not known without Python. Each size has to be a number, or that of an input's "
        "dimension, whose rank is known. Declare that before the model is saved:\n\n    "
        "hostcall.native(function, result=lambda x: tf.TensorSpec(x.shape, x.dtype))"));
  }
  Shapes shapes;
  for (const std::vector<Size>& sizes : *results) {
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const Size& size : sizes) {
      shape.push_back(SizeOf(size, inputs));
      if (shape.back() >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "hostcall: the native function ", token.label, " has a result of the size of dimension ",
          size.dimension, " of input ", size.input, ", and there is no such dimension."));
    }
  }
  TF_RETURN_IF_ERROR(CheckTraced(token, shapes));
  return shapes;
}

absl::StatusOr<const Callee*> FindCallee(const std::string& token) {
  Table& table = GlobalTable();
  {
    std::lock_guard<std::mutex> lock(table.mutex);
    const auto found = table.callees.find(token);
    if (found != table.callees.end()) return found->second.get();
  }
  // Load without the lock: a library may run its own code when it is loaded.
  TF_ASSIGN_OR_RETURN(Callee made, MakeCallee(token));
  std::lock_guard<std::mutex> lock(table.mutex);
  auto& kept = table.callees[token];
  if (kept == nullptr) kept = std::make_unique<const Callee>(std::move(made));
  return kept.get();
}

}  // namespace hostcall::serving
