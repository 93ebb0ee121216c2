#pragma once
// From CUPTI's callback to the table of the thread that calls: in which step the call lies, in which part of
// the run, and whose it is.
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "collectors/sync_ledger/call_counter.hpp"
#include "collectors/sync_ledger/cupti/cupti_abi.hpp"
#include "collectors/sync_ledger/places/place_finder.hpp"
#include "collectors/sync_ledger/places/place_store.hpp"
#include "collectors/sync_ledger/places/python_stack.hpp"
#include "collectors/sync_ledger/table_pool.hpp"

namespace gradvane::collectors {

/// A thread may be in take() whenever CUPTI is subscribed and for a moment after: nothing that it uses is ever
/// freed. Any thread, unless said otherwise.
class CallIntake {
 public:
  /// `now`: monotonic, nanoseconds.
  explicit CallIntake(std::int64_t (*now)()) : now_(now) {}

  /// Maps the memory for tables and places, once. One thread at a time.
  [[nodiscard]] bool make_room() noexcept;
  void set_threshold(std::int64_t nanoseconds) noexcept { counter_.set_threshold(nanoseconds); }
  /// Frames of files below it are passed over.
  void pass_over(std::string_view directory) noexcept { finder_.pass_over(directory); }
  /// What is called before the next end_step() is start-up.
  void begin_start_up() noexcept { start_epoch_.store(epoch_.load()); }

  /// In a callback, on the thread that calls: no lock, no allocation.
  void take(cupti::Domain domain, std::uint32_t id, const cupti::CallbackData& data,
            std::uint64_t generation) noexcept;

  // The calling thread's own ----------------------------------------------------------------------------

  static void own(int delta) noexcept;
  static const char* set_scope(const char* name) noexcept;
  /// It trains, and its step is over: its last copy is settled.
  void settle_thread() noexcept;

  // Steps -----------------------------------------------------------------------------------------------

  /// Begins the next epoch; returns the one that ends.
  std::uint64_t end_epoch() noexcept { return epoch_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t epoch() const noexcept {
    return epoch_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_start_up(std::uint64_t epoch) const noexcept {
    return epoch <= start_epoch_.load(std::memory_order_relaxed);
  }
  void set_phase(std::uint8_t phase) noexcept { phase_.store(phase); }
  void outside_steps(int delta) noexcept { outside_.fetch_add(delta); }
  /// Of threads that train, so far.
  [[nodiscard]] std::int64_t polls() noexcept;

  [[nodiscard]] TablePool& tables() noexcept { return tables_; }
  [[nodiscard]] PlaceStore& places() noexcept { return places_; }
  [[nodiscard]] PythonStack& python() noexcept { return python_; }

 private:
  ThreadTable* table(const CudaCall& call, cupti::Site site) noexcept;
  [[nodiscard]] record::SyncPart part_of(std::uint64_t epoch) const noexcept;

  std::int64_t (*now_)();
  TablePool tables_;
  PlaceStore places_;
  PythonStack python_;
  PlaceFinder finder_{places_, python_};
  CallCounter counter_{finder_};
  bool has_room_ = false;

  std::atomic<std::uint64_t> epoch_{kFirstEpoch};
  std::atomic<std::uint64_t> start_epoch_{kFirstEpoch};  ///< in progress when somebody joined last
  std::atomic<std::uint8_t> phase_{kNoPhase};
  std::atomic<int> outside_{0};  ///< of steps, if more than 0
};

}  // namespace gradvane::collectors
