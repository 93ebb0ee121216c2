// The library's two doors: the driver calls one while it is set up, an agent in the same process the other,
// and either may be first. Neither may let an exception out: the caller knows nothing of C++.
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "collectors/sync_ledger/injected.hpp"
#include "inject/injected_run.hpp"
#include "inject/python_end.hpp"

namespace {

using gradvane::inject::FirstCaller;
using gradvane::inject::InjectedRun;

std::mutex making;
// The ledger that we make looks whether an injected library has one: it must not find itself.
thread_local bool is_making = false;
InjectedRun* the_run = nullptr;

/// Null: switched off. Throws where there is no memory or no thread.
InjectedRun* find_or_make(FirstCaller caller) {
  {
    const std::lock_guard lock(making);
    if (the_run != nullptr) return the_run;
    auto settings = gradvane::inject::settings_of_environment();
    if (settings.is_off) return nullptr;
    is_making = true;
    auto* run = new InjectedRun(std::move(settings), caller);
    is_making = false;
    // An agent that found this run now would take the ledger, ask for the subscription, wait for the driver,
    // and the driver for us.
    if (caller == FirstCaller::driver) run->join();
    the_run = run;
    (void)std::atexit([] { the_run->finish(); });
    (void)::pthread_atfork(nullptr, nullptr, [] {
      new (&making) std::mutex;  // another thread may have had it
      the_run->in_forked_child();
    });
    gradvane::inject::before_python_ends([] { the_run->ledger().end(); });
  }
  // Not with the lock: to subscribe may be to wait for a thread that is here because of the driver.
  if (caller == FirstCaller::agent) the_run->join();
  the_run->start();
  return the_run;
}

}  // namespace

/// Called by the CUDA driver once, from cuInit. Returns 1, as it asks for.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" [[gnu::visibility("default")]] int InitializeInjection() noexcept try {
  if (InjectedRun* run = find_or_make(FirstCaller::driver)) run->note_driver();
  return 1;
} catch (...) {  // the program runs on as if we had not come
  return 1;
}

/// For an agent of the same version: the ledger, which it joins.
extern "C" [[gnu::visibility("default")]] void* gradvane_find_sync_ledger(
    const char* version) noexcept try {
  if (is_making || std::strcmp(version, gradvane::collectors::kLedgerVersion) != 0) return nullptr;
  InjectedRun* run = find_or_make(FirstCaller::agent);
  return run == nullptr ? nullptr : &run->ledger();
} catch (...) {  // it has one of its own
  return nullptr;
}
