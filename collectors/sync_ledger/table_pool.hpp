#pragma once
// One table for each thread that calls CUDA, from a fixed number of them. A thread takes its table in its
// first callback; the reader takes back those whose threads have gone.
#include <array>
#include <atomic>
#include <cstdint>

#include "collectors/sync_ledger/mapped.hpp"
#include "collectors/sync_ledger/thread_table.hpp"

namespace gradvane::collectors {

class TablePool {
 public:
  static constexpr std::uint32_t kTables = 512;

  /// False where there is no memory.
  bool open() noexcept { return tables_.map(kTables); }

  /// A table for the calling thread; null where none is free. In a callback.
  ThreadTable* claim() noexcept;
  /// Calls of threads for which claim() found none.
  [[nodiscard]] std::int64_t refused() const noexcept { return refused_.load(); }
  void note_refused() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }
  /// By the training, from its threads whose tables were taken back.
  [[nodiscard]] std::int64_t polls_of_the_gone() const noexcept { return gone_polls_.load(); }

  // The reader's -------------------------------------------------------------------------------------

  template <typename Look>
  void for_each(Look look) noexcept(false) {
    const std::uint32_t used = most_used_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < used; ++i)
      if (taken_[i].load(std::memory_order_acquire) == kTaken) look(tables_[i]);
  }
  /// Takes back the tables of threads that are gone; `look` sees each for the last time.
  template <typename Look>
  void take_back(Look look) {
    const std::uint32_t used = most_used_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < used; ++i) {
      if (taken_[i].load(std::memory_order_acquire) != kTaken || is_alive(tables_[i])) continue;
      look(tables_[i]);
      if (tables_[i].is_of_training != 0)
        gone_polls_.fetch_add(tables_[i].polls[0], std::memory_order_relaxed);
      tables_.clear(i);
      taken_[i].store(kFree, std::memory_order_release);
    }
  }
  [[nodiscard]] std::uint32_t most_used() const noexcept { return most_used_.load(); }

 private:
  static constexpr std::uint8_t kFree = 0;
  static constexpr std::uint8_t kClaimed = 1;  ///< not yet to be looked at
  static constexpr std::uint8_t kTaken = 2;

  static bool is_alive(const ThreadTable& table) noexcept;

  Mapped<ThreadTable> tables_;
  std::array<std::atomic<std::uint8_t>, kTables> taken_{};
  std::atomic<std::uint32_t> most_used_{0};
  std::atomic<std::int64_t> refused_{0};
  std::atomic<std::int64_t> gone_polls_{0};
};

}  // namespace gradvane::collectors
