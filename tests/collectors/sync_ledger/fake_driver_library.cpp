// A fake libcuda.so.1 that does one thing as the real one does: cuInit brings the injected library.
#include <dlfcn.h>

#include <cstdlib>

// NOLINTNEXTLINE(readability-identifier-naming): the driver's
extern "C" [[gnu::visibility("default")]] int cuInit(unsigned) {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return 0;
  void* library = ::dlopen(path, RTLD_NOW);
  if (library == nullptr) return 0;
  const auto initialize = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"));
  if (initialize != nullptr) (void)initialize();
  return 0;
}
