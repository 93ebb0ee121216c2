#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "exporters/web/tls.hpp"

namespace gradvane::exporters {
namespace {

constexpr const char* kFile = "libgradvane_tls.so";

/// The folder of what this code was linked into.
std::filesystem::path own_folder() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<const void*>(&tls_library), &found) == 0 ||
      found.dli_fname == nullptr)
    return {};
  std::error_code ignored;
  const auto file = std::filesystem::canonical(found.dli_fname, ignored);
  return file.parent_path();
}

const TlsLibrary& load() {
  const std::filesystem::path own = own_folder();
  std::string said;
  std::vector<std::filesystem::path> places{kFile};
  if (!own.empty()) places = {own / kFile, own / "../lib" / kFile, kFile};
  for (const auto& path : places) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* error = ::dlerror();
      if (said.empty() && error != nullptr) said = error;
      continue;
    }
    const auto function =
        reinterpret_cast<TlsLibraryFunction>(::dlsym(library, "gradvane_tls_library"));
    const TlsLibrary* found = function == nullptr ? nullptr : function(kTlsLibraryVersion);
    if (found != nullptr) return *found;
    said = path.string() + " is of another version";
  }
  throw std::runtime_error(std::string(kFile) +
                           " cannot be loaded, which TLS and passwords need: " + said);
}

}  // namespace

const TlsLibrary& tls_library() {
  static const TlsLibrary& library = load();
  return library;
}

}  // namespace gradvane::exporters
