#include "collectors/sync_ledger/table_pool.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

namespace gradvane::collectors {

namespace {

/// A backward pass runs on threads of its own, which PyTorch names.
bool runs_backward_passes() noexcept {
  constexpr std::string_view kAutograd = "pt_autograd";
  std::array<char, 16> name{};
  (void)::prctl(PR_GET_NAME, name.data());
  return std::string_view(name.data()).starts_with(kAutograd);
}

}  // namespace

ThreadTable* TablePool::claim() noexcept {
  for (std::uint32_t i = 0; i < kTables; ++i) {
    std::uint8_t expected = kFree;
    if (!taken_[i].compare_exchange_strong(expected, kClaimed, std::memory_order_acquire)) continue;
    tables_[i].thread_id = static_cast<std::int32_t>(::syscall(SYS_gettid));
    tables_[i].is_of_training = runs_backward_passes() ? 1 : 0;
    taken_[i].store(kTaken, std::memory_order_release);
    std::uint32_t most = most_used_.load(std::memory_order_relaxed);
    while (most < i + 1 && !most_used_.compare_exchange_weak(most, i + 1)) {
    }
    return &tables_[i];
  }
  return nullptr;
}

/// An id that another thread has got since keeps the table a while longer.
bool TablePool::is_alive(const ThreadTable& table) noexcept {
  return ::syscall(SYS_tgkill, ::getpid(), table.thread_id, 0) == 0 || errno != ESRCH;
}

}  // namespace gradvane::collectors
