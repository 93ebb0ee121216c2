// The library's two doors: the driver calls one while it is set up, an agent in the same process the other.
// Neither may let an exception out: the caller knows nothing of C++.
#include <pthread.h>

#include <cstdlib>
#include <cstring>

#include "collectors/sync_ledger/injected.hpp"
#include "inject/injected_run.hpp"

namespace {

gradvane::inject::InjectedRun* the_run = nullptr;

}  // namespace

/// Called by the CUDA driver once, from cuInit. Returns 1, as it asks for.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() noexcept try {
  auto settings = gradvane::inject::settings_of_environment();
  if (settings.is_off || the_run != nullptr) return 1;
  auto* run = new gradvane::inject::InjectedRun(std::move(settings));
  run->start();
  the_run = run;
  (void)std::atexit([] { the_run->finish(); });
  (void)::pthread_atfork(nullptr, nullptr, [] { the_run->in_forked_child(); });
  return 1;
} catch (...) {  // the program runs on as if we had not come
  return 1;
}

/// For an agent of the same version: the ledger, which it joins.
extern "C" [[gnu::visibility("default")]] void* gradvane_find_sync_ledger(
    const char* version) noexcept {
  if (the_run == nullptr || std::strcmp(version, gradvane::collectors::kLedgerVersion) != 0)
    return nullptr;
  the_run->note_agent();
  return &the_run->ledger();
}
