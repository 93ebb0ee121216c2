// The one ledger of the process, wherever it lies.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "collectors/sync_ledger/injected.hpp"

namespace gradvane::collectors {
namespace {

std::atomic<SyncLedger*> in_use{nullptr};

CuptiLedger& own_ledger() {
  // Never destroyed: CUPTI's threads outlive main().
  alignas(CuptiLedger) static std::byte memory[sizeof(CuptiLedger)];
  static CuptiLedger* ledger = [] {
    CuptiLedger::World world = CuptiLedger::real_world();
    // After CUPTI's own handlers for the end of the process, so that it runs before them.
    world.loaded = [] {
      static const int kRegistered =
          std::atexit([] { std::launder(reinterpret_cast<CuptiLedger*>(memory))->end(); });
      (void)kRegistered;
    };
    auto* made = new (memory) CuptiLedger(world);
    (void)::pthread_atfork(nullptr, nullptr, [] {
      std::launder(reinterpret_cast<CuptiLedger*>(memory))->in_forked_child();
    });
    return made;
  }();
  return *ledger;
}

/// What the driver will bring when it comes: asked for now, so that there is one ledger whoever is first.
void* library_to_come() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return nullptr;
  const std::string_view name(path);
  if (name.substr(name.rfind('/') + 1) != kInjectedLibrary) return nullptr;
  return ::dlopen(path, RTLD_NOW);
}

SyncLedger* injected_ledger() {
  void* library = ::dlopen(kInjectedLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = library_to_come();
  if (library == nullptr) return nullptr;
  const auto find = reinterpret_cast<FindLedger>(::dlsym(library, kFindLedgerName));
  return find == nullptr ? nullptr : static_cast<SyncLedger*>(find(kLedgerVersion));
}

/// Null: there is none but our own.
SyncLedger* shared_ledger() noexcept {
  static SyncLedger* ledger = injected_ledger();
  return ledger;
}

}  // namespace

SyncLedger& process_ledger() noexcept {
  static SyncLedger& ledger = [&]() -> SyncLedger& {
    SyncLedger& found = ledger_is_shared() ? *shared_ledger() : own_ledger();
    in_use.store(&found);
    return found;
  }();
  return ledger;
}

void end_process_ledger() noexcept {
  if (SyncLedger* ledger = in_use.load()) ledger->end();
}

bool has_injected_library() noexcept {
  void* library = ::dlopen(kInjectedLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr)
    ::dlclose(library);  // it stays: this gives back what dlopen() has counted
  return library != nullptr;
}

bool ledger_is_shared() noexcept { return shared_ledger() != nullptr; }

}  // namespace gradvane::collectors
