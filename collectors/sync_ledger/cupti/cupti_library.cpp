#include "collectors/sync_ledger/cupti/cupti_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
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
  // The first one that was good: a second libcupti in a process would be worse than none.
  static Functions functions;
  static bool is_loaded = false;
  if (is_loaded) return &functions;
  void* library = open(path);
  if (library == nullptr) {
    const char* error = ::dlerror();
    why = path.empty() || error == nullptr ? "no libcupti.so.13 or .12 is found" : error;
    return nullptr;
  }
  functions = {};
  (void)find(library, "cuptiSubscribe_v2", functions.subscribe_v2);
  const bool whole = find(library, "cuptiSubscribe", functions.subscribe) &&
                     find(library, "cuptiUnsubscribe", functions.unsubscribe) &&
                     find(library, "cuptiEnableCallback", functions.enable_callback) &&
                     find(library, "cuptiGetVersion", functions.get_version) &&
                     find(library, "cuptiGetResultString", functions.get_result_string) &&
                     find(library, "cuptiGetCallbackName", functions.get_callback_name);
  is_loaded = whole;
  if (whole) return &functions;
  why = "libcupti lacks functions that are needed";
  return nullptr;
}

bool is_in_process(std::string_view library) noexcept {
  const auto look = [](dl_phdr_info* object, std::size_t, void* wanted) {
    const std::string_view path(object->dlpi_name == nullptr ? "" : object->dlpi_name);
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return name.starts_with(*static_cast<const std::string_view*>(wanted)) ? 1 : 0;
  };
  return ::dl_iterate_phdr(look, &library) != 0;
}

bool driver_is_loaded() noexcept {
  if (!is_in_process("libcuda.so")) return false;
  void* driver = ::dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  (void)::dlclose(driver);
  return true;
}

void call_driver() noexcept {
  using GetVersion = int (*)(int*);
  static std::atomic<GetVersion> known{nullptr};
  GetVersion get_version = known.load(std::memory_order_relaxed);
  if (get_version == nullptr) {
    void* driver = ::dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return;
    get_version = reinterpret_cast<GetVersion>(::dlsym(driver, kDriverGetVersionName));
    if (get_version == nullptr) return;
    known.store(get_version, std::memory_order_relaxed);
  }
  int version = 0;
  (void)get_version(&version);
}

}  // namespace gradvane::collectors::cupti
