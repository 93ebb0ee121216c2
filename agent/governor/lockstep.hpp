#pragma once
// What ranks need to decide the same about the same step: what one tells, and what all have told.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "agent/governor/step_finding.hpp"
#include "agent/ranks/agreement.hpp"
#include "agent/ranks/rank_record.hpp"

namespace gradvane::agent {

/// Belongs to the thread that trains. After each join() its state is the same on every rank.
class Lockstep {
 public:
  explicit Lockstep(bool is_on) noexcept : is_on_(is_on) {}

  /// False: ranks were never to agree, or cannot any more.
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  void end() noexcept;

  /// Run steps of this rank's good snapshots, the newest first; 0: none.
  void set_good_snapshots(std::array<std::int64_t, ranks::kGenerations> run_steps) noexcept {
    good_snapshots_ = run_steps;
  }

  /// `own`: an incident that this rank has found and not told yet.
  [[nodiscard]] ranks::RankRecord tell(const StepFinding& step,
                                       const std::optional<PendingIncident>& own,
                                       const ranks::Policy& policy) noexcept;

  /// `step` as all ranks know it.
  [[nodiscard]] StepFinding join(const StepFinding& step, const ranks::Agreement& agreed) noexcept;

  /// The incident of any rank that waits for a decision; it waits no longer.
  [[nodiscard]] std::optional<PendingIncident> take_incident() noexcept;

  /// Run step of the newest snapshot that every rank has and that is older than `bad_since`, if that
  /// is given; 0: there is none.
  [[nodiscard]] std::int64_t common_snapshot(std::optional<std::int64_t> bad_since) const noexcept;

 private:
  bool is_on_;
  std::uint64_t told_ = 0;
  std::optional<PendingIncident> incident_;
  std::optional<PendingIncident> told_incident_;  ///< in an exchange that has not ended
  std::array<std::int64_t, ranks::kGenerations> good_snapshots_{};
  std::array<std::int64_t, ranks::kGenerations> common_snapshots_{};
};

}  // namespace gradvane::agent
