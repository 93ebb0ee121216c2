#pragma once
// Keeps the last two good states of a training, and goes back to one. For C++ programs whose
// parameters are on a CPU: a copy is whole before the hook returns.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/governor/governor.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/snapshots/snapshot_clock.hpp"
#include "agent/snapshots/training_state.hpp"

namespace gradvane::agent {

/// Training thread only.
class Snapshots {
 public:
  /// `governor` outlives it, and gets a line for the log at the first refusal of each kind.
  explicit Snapshots(Governor& governor) : governor_(governor), clock_(governor.pace()) {}

  [[nodiscard]] TrainingState& state() noexcept { return state_; }
  void on_rollback(std::function<void(const Rollback&)> callback) {
    callbacks_.push_back(std::move(callback));
  }

  /// An optimizer's step is over, taken or left out; 0: a loop without an optimizer. With several
  /// optimizers, snapshots and rollbacks happen at the step of the one that ends an iteration: whose
  /// first step was the last of the first round. `goes_back`: a policy decided so.
  void after_step(int optimizer, std::int64_t run_step, bool goes_back) noexcept;

  /// Takes one now. False: it was refused, and last_refusal() says why.
  bool take(std::int64_t run_step) noexcept;
  [[nodiscard]] const std::string& last_refusal() const noexcept { return last_refusal_; }
  /// Throws std::runtime_error if there is none, or the training no longer fits it; then nothing has
  /// changed.
  Rollback go_back(std::string reason, std::int64_t run_step, const RollbackOptions& options);

 private:
  struct Generation {
    StateCopy copy{};
    std::int64_t number = 0;
    std::int64_t run_step = 0;
    double taken_at = 0;
    std::uint64_t checksum = 0;
    int restores = 0;
    bool is_good = false;
  };

  [[nodiscard]] bool leads(int optimizer);
  [[nodiscard]] Generation* newest_good(
      std::optional<std::int64_t> run_step = std::nullopt) noexcept;
  /// `run_step`: only the snapshot of that step will do.
  [[nodiscard]] Generation& intact(std::optional<std::int64_t> run_step);
  bool refuse(record::SnapshotResult result, std::string why) noexcept;
  void note_newest() noexcept;
  void forget_since(std::int64_t run_step) noexcept;
  void answer(std::int64_t run_step) noexcept;
  Rollback restore(std::string reason, std::int64_t run_step, const RollbackOptions& options,
                   std::optional<std::int64_t> to_step, bool is_by_policy);

  Governor& governor_;
  TrainingState state_;
  SnapshotClock clock_;
  std::array<Generation, 2> generations_{};
  std::int64_t begun_ = 0;
  std::set<std::string> masks_{};  ///< buffers that may hold infinities
  bool has_masks_ = false;
  std::set<record::SnapshotResult> logged_{};
  std::string last_refusal_{};
  std::vector<std::function<void(const Rollback&)>> callbacks_{};
  std::set<int> stepped_{};  ///< until there is a leader
  int leader_ = -1;
  bool is_asked_ = false;  ///< a policy's rollback waits for the end of the iteration
};

}  // namespace gradvane::agent
