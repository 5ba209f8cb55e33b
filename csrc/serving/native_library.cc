#include "native_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/native_code.h"

namespace hostcall::serving {
namespace {

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

std::string Calls(const NativeTarget& target, const std::string& label) {
  return absl::StrCat("hostcall: the saved graph calls native code, the function ", target.symbol,
                      " of ", target.library, " (", label, "), and ");
}

absl::Status NotAllowed(const NativeTarget& target, const std::string& label) {
  const std::string folder = absl::StrContains(target.library, '/')
                                 ? target.library.substr(0, target.library.rfind('/'))
                                 : "/folder/of/it";
  const std::vector<std::string> folders = AllowedFolders();
  return absl::FailedPreconditionError(absl::StrCat(
      Calls(target, label),
      folders.empty()
          ? "no folder is allowed"
          : absl::StrCat("it lies in none of the allowed folders, ", absl::StrJoin(folders, ", ")),
      ". If you trust the file, start the process with the folder of the library, where that is "
      "on this machine:\n\n    export ",
      kNativePath, "=", folder));
}

absl::Status Unusable(const NativeTarget& target, const std::string& label, std::string_view why) {
  return absl::NotFoundError(absl::StrCat(Calls(target, label), why,
                                          ". Is it the library that the model was saved with?"));
}

// Returns true if the symbol is the library's own, not that of a library that it links to.
bool IsOwn(void* symbol, const std::string& path) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return false;
  return RealPath(info.dli_fname) == path;
}

}  // namespace

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

}  // namespace hostcall::serving
