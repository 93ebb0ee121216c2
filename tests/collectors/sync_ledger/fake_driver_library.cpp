// A fake libcuda.so.1 that does two things as the real one does: cuInit brings the injected library, with the driver's
// lock held, and cuDriverGetVersion raises the callback of a CUPTI that is there.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

template <typename Function>
Function in_fake_cuda(const char* name) {
  const char* path = std::getenv("FAKE_CUDA");
  void* cuda = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (cuda == nullptr) return nullptr;
  const auto found = reinterpret_cast<Function>(::dlsym(cuda, name));
  (void)::dlclose(cuda);
  return found;
}

void with_driver(const char* name) {
  if (const auto function = in_fake_cuda<void (*)()>(name)) function();
}

/// Where a test has it so, setting the driver up takes until another thread subscribes.
void wait_for_subscriber() {
  const auto waiting = in_fake_cuda<int (*)()>("fake_waiting_for_driver");
  while (std::getenv("FAKE_DRIVER_MEETS_SUBSCRIBER") != nullptr && waiting != nullptr &&
         waiting() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the driver's
extern "C" [[gnu::visibility("default")]] int cuInit(unsigned) {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return 0;
  void* library = ::dlopen(path, RTLD_NOW);
  if (library == nullptr) return 0;
  const auto initialize = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"));
  if (initialize == nullptr) return 0;
  with_driver("fake_driver_lock");
  wait_for_subscriber();
  (void)initialize();
  with_driver("fake_driver_unlock");
  return 0;
}

extern "C" [[gnu::visibility("default")]] int cuDriverGetVersion(int* version) {
  *version = 0;  // CUDA's runtime, which asks too, finds no driver then
  with_driver("fake_driver_call");
  return 0;
}
// NOLINTEND(readability-identifier-naming)
