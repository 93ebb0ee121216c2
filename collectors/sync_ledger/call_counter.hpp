#pragma once
// From the beginnings and ends of CUDA calls on one thread to host syncs, each counted once: the outermost
// call counts, an asynchronous copy and the wait for it from one place are one read, what only may wait
// counts if it did.
#include <atomic>
#include <cstdint>

#include "collectors/sync_ledger/cupti/cupti_abi.hpp"
#include "collectors/sync_ledger/places/place_finder.hpp"
#include "collectors/sync_ledger/thread_table.hpp"

namespace gradvane::collectors {

class CallCounter {
 public:
  static constexpr std::int64_t kUsualThreshold = 50'000;  ///< nanoseconds

  explicit CallCounter(PlaceFinder& finder) : finder_(finder) {}

  /// How long a call that only may wait must take to count.
  void set_threshold(std::int64_t nanoseconds) noexcept { threshold_.store(nanoseconds); }

  /// What else is known at that moment.
  struct Circumstances {
    std::int64_t now = 0;          ///< monotonic, nanoseconds
    std::uint64_t generation = 0;  ///< of the subscription
    std::uint64_t epoch = 0;       ///< of the step
    std::uint8_t phase = kNoPhase;
    record::SyncOrigin origin = record::SyncOrigin::training;
    record::SyncPart part = record::SyncPart::in_steps;
    const char* scope = nullptr;
  };

  /// In a callback, on the thread that calls: no lock, no allocation.
  void enter(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
             const Circumstances& now) noexcept;
  void exit(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
            const Circumstances& now) noexcept;

 private:
  void finish(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
              const Circumstances& now) noexcept;
  void finish_copy(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
                   std::int64_t took, bool has_waited, const Circumstances& now) noexcept;
  void finish_stream(ThreadTable& table, const CudaCall& call, const cupti::CallbackData& data,
                     std::int64_t took, const char* scope) noexcept;
  [[nodiscard]] SyncKey key_of(ThreadTable& table, const CudaCall& call, record::SyncKind kind,
                               const char* scope) noexcept;

  PlaceFinder& finder_;
  std::atomic<std::int64_t> threshold_{kUsualThreshold};
};

}  // namespace gradvane::collectors
