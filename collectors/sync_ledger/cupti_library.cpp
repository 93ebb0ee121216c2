#include "collectors/sync_ledger/cupti_library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace gradvane::collectors::cupti {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr std::array kNames{"libcupti.so.13", "libcupti.so.12"};

void* open(const std::string& path) {
  if (!path.empty()) return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* name : kNames)
    if (void* loaded = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  for (const char* name : kNames)
    if (void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  // A guess of whoever started the program: it must never be a second one.
  const char* last = std::getenv("GRADVANE_SYNC_LIBRARY_ELSE");
  return last == nullptr ? nullptr : ::dlopen(last, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

const Functions* load(const std::string& path, std::string& why) {
  void* library = open(path);
  if (library == nullptr) {
    const char* error = ::dlerror();
    why = path.empty() || error == nullptr ? "no libcupti.so.13 or .12 is found" : error;
    return nullptr;
  }
  static Functions functions;
  functions = {};
  (void)find(library, "cuptiSubscribe_v2", functions.subscribe_v2);
  const bool whole = find(library, "cuptiSubscribe", functions.subscribe) &&
                     find(library, "cuptiUnsubscribe", functions.unsubscribe) &&
                     find(library, "cuptiEnableCallback", functions.enable_callback) &&
                     find(library, "cuptiGetCallbackState", functions.get_callback_state) &&
                     find(library, "cuptiGetVersion", functions.get_version) &&
                     find(library, "cuptiGetResultString", functions.get_result_string) &&
                     find(library, "cuptiGetCallbackName", functions.get_callback_name);
  if (whole) return &functions;
  why = "libcupti lacks functions that are needed";
  return nullptr;
}

bool driver_is_loaded() noexcept {
  void* driver = ::dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  (void)::dlclose(driver);
  return true;
}

bool driver_is_installed() noexcept {
  return std::ranges::any_of(
      std::array{"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"},
      [](const char* file) { return ::access(file, F_OK) == 0; });
}

}  // namespace gradvane::collectors::cupti
