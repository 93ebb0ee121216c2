#pragma once
// The signals of the process that a worker acts on.
#include <atomic>
#include <optional>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "agent/worker/ending.hpp"

namespace gradvane::agent {

/// From take() to give_back(), which its end calls as well.
/// Threading: take() on the thread of the set-up, give_back() and ending() on any.
class TakenSignals {
 public:
  /// SIGTERM and SIGINT, unless `handles_sigterm` is false, and the one that asks for a recording.
  TakenSignals(bool handles_sigterm, RecorderSignal recorder_signal);
  ~TakenSignals() { give_back(); }
  TakenSignals(const TakenSignals&) = delete;  // one owner gives them back
  TakenSignals& operator=(const TakenSignals&) = delete;

  /// From here on the process's signals are ours: the worker's thread has to start, or they are
  /// given back.
  void take(UserCallbacks& callbacks);
  /// Only the first call has an effect.
  void give_back() noexcept;
  /// How the run ends by the signal that has come. Absent if none has come, or if it is not ours.
  [[nodiscard]] std::optional<Ending> ending() const;

 private:
  bool handles_sigterm_;
  std::vector<int> signals_;
  std::atomic<bool> has_signals_{false};
};

}  // namespace gradvane::agent
