#pragma once
// What the worker and the threads that wait for it share: which steps have been exported, that the
// run is to end, and that it has ended.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "agent/worker/ending.hpp"

namespace gradvane::agent {

/// Threading: any thread. One mutex guards everything, and no thread holds it while it waits.
class RunProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // Called by the worker.

  /// Steps exported or lost, in the numbering of Handoff::steps_published().
  void note_exported(std::uint64_t steps) noexcept;
  /// One round of the worker is over. Waits for a request to end, for at most `pause`, and not at all while a flush
  /// waits for a round.
  [[nodiscard]] std::optional<Ending> await_request(std::chrono::microseconds pause);
  /// No other round comes.
  void note_last_round() noexcept;
  /// await_end() waits until `time` at least.
  void postpone_end(Clock::time_point time) noexcept;
  void note_end() noexcept;

  // Called by other threads.

  /// Only the first call has an effect.
  void request_end(record::RunState state, std::string_view reason, Linger linger) noexcept;
  /// Waits until `steps` have been exported, and the worker has made one whole round since this was called: what it
  /// learns beside the steps, as rollbacks, is known then too. False: it took too long, or the run ended before.
  [[nodiscard]] bool await_exported(std::uint64_t steps, std::chrono::milliseconds timeout);
  /// Waits for the end, as long as it may take. False: it did not come in time, or Ctrl-C ended the
  /// wait. To be called after request_end().
  [[nodiscard]] bool await_end();

 private:
  [[nodiscard]] bool has_ended_within(std::chrono::milliseconds time);

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::uint64_t exported_ = 0;
  std::uint64_t rounds_ = 0;  ///< that the worker has made
  std::uint64_t wanted_ = 0;  ///< rounds that a flush waits for
  bool was_last_round_ = false;
  std::optional<Ending> request_;
  bool has_ended_ = false;
  Clock::time_point end_by_;  ///< then the wait for the end is over
};

}  // namespace gradvane::agent
