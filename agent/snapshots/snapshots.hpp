#pragma once
// Keeps the last two good states of a training, and goes back to one. For C++ programs: what a CPU holds is copied,
// examined and committed before the hook returns; what a device holds, while the training goes on.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/governor/governor.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/snapshots/copies.hpp"
#include "agent/snapshots/examination.hpp"
#include "agent/snapshots/host_memory.hpp"
#include "agent/snapshots/leader.hpp"
#include "agent/snapshots/snapshot_clock.hpp"
#include "agent/snapshots/training_state.hpp"

namespace gradvane::agent {

/// Training thread only.
class Snapshots {
 public:
  /// `governor` outlives it, and gets a line for the log at the first refusal of each kind.
  /// @param is_capturing  whether the training records a CUDA graph now: no call to the device is allowed then
  /// @param ledger        as Copies::set_ledger()
  Snapshots(Governor& governor, std::function<bool()> is_capturing,
            std::function<collectors::SyncLedger*()> ledger,
            std::unique_ptr<Streams> streams = torch_streams());
  ~Snapshots();                          // copies that are under way land before their memory goes
  Snapshots(const Snapshots&) = delete;  // its parts hold its addresses
  Snapshots& operator=(const Snapshots&) = delete;

  [[nodiscard]] TrainingState& state() noexcept { return state_; }
  void writes_on(c10::Stream stream) { copies_.writes_on(stream); }
  /// Asks why so many more bytes are not taken; it returns an empty text if they may be.
  void ask_for_memory(std::function<std::string(std::int64_t)> refusal) {
    memory_refusal_ = std::move(refusal);
  }
  void on_rollback(std::function<void(const Rollback&)> callback) {
    callbacks_.push_back(std::move(callback));
  }

  /// An optimizer's step is over, taken or left out; 0: a loop without an optimizer. With several
  /// optimizers, snapshots and rollbacks happen at the step of the one that ends an iteration, the leader. `goes_back`: a
  /// policy decided so; if the leader does not step within a round, it goes back without it. `overlaps`: before_update() comes
  /// before the next update, so that copies may be under way until then.
  void after_step(int optimizer, std::int64_t run_step, bool goes_back, bool overlaps) noexcept;
  /// An optimizer is about to write: it waits, on its device, for copies that are under way.
  void before_update() noexcept;

  /// Takes one now, whole. False: it was refused, and last_refusal() says why.
  bool take_now(std::int64_t run_step) noexcept;
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
    /// Copies from or into it that were under way when it was needed no more.
    Flight read_by{};
  };
  /// One that is under way.
  struct Pending {
    Generation* generation = nullptr;
    Flight flight{};
    std::unique_ptr<Examination> examination = nullptr;  ///< from when the copies have landed
  };

  /// False: it was refused; or the one before it is not over, which does not count.
  bool take(std::int64_t run_step, bool overlaps) noexcept;
  /// Takes the one that is under way as far as it has come, without waiting for it unless that is asked for.
  void settle(bool wait) noexcept;
  bool commit(Generation& place, const Examined& found) noexcept;
  /// The one that is under way is given up.
  void drop(record::SnapshotResult why, std::string_view reason) noexcept;
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
  std::function<bool()> is_capturing_;
  std::function<std::string(std::int64_t)> memory_refusal_ = [](std::int64_t bytes) {
    return memory_refusal(bytes);
  };
  Copies copies_;
  TrainingState state_;
  SnapshotClock clock_;
  std::array<Generation, 2> generations_{};
  std::optional<Pending> pending_{};
  bool overlaps_ =
      true;  ///< nothing but optimizers has written parameters between two steps so far
  std::int64_t committed_ = 0;
  std::int64_t begun_ = 0;
  std::set<std::string> masks_{};  ///< buffers that may hold infinities
  bool has_masks_ = false;
  std::set<record::SnapshotResult> logged_{};
  std::string last_refusal_{};
  std::vector<std::function<void(const Rollback&)>> callbacks_{};
  Leader leader_;
  bool is_asked_ = false;  ///< a policy's rollback waits for the end of the iteration
  std::int64_t steps_since_asked_ = 0;
};

}  // namespace gradvane::agent
