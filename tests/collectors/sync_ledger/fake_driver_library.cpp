// A fake libcuda.so.1 that does two things as the real one does: cuInit brings the injected library, and
// cuDriverGetVersion raises the callback of a CUPTI that is there.
#include <dlfcn.h>

#include <cstdlib>

// NOLINTBEGIN(readability-identifier-naming): the driver's
extern "C" [[gnu::visibility("default")]] int cuInit(unsigned) {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return 0;
  void* library = ::dlopen(path, RTLD_NOW);
  if (library == nullptr) return 0;
  const auto initialize = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"));
  if (initialize != nullptr) (void)initialize();
  return 0;
}

extern "C" [[gnu::visibility("default")]] int cuDriverGetVersion(int* version) {
  *version = 0;  // CUDA's runtime, which asks too, finds no driver then
  const char* path = std::getenv("FAKE_CUDA");
  void* cuda = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (cuda == nullptr) return 0;
  const auto raise = reinterpret_cast<void (*)()>(::dlsym(cuda, "fake_driver_call"));
  if (raise != nullptr) raise();
  (void)::dlclose(cuda);
  return 0;
}
// NOLINTEND(readability-identifier-naming)
