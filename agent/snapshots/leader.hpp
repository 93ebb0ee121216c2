#pragma once
// Which of several optimizers ends an iteration of the loop: snapshots and rollbacks happen at its steps.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace gradvane::agent {

/// In a loop that steps a critic five times and then a generator, the state right after the generator's step is at one
/// place of the loop, and that after some step of the critic is not.
class Leader {
 public:
  /// Steps of one optimizer until another one, which has not stepped at all, is not waited for; and how many rounds a
  /// leader may miss until they choose again.
  static constexpr std::int64_t kPatience = 32;

  /// Whether `optimizer`, of so many that are attached, leads: its first step was the last of the first round. When
  /// another is attached, or the leader steps no more, they choose again; from the next step on, if one that was not
  /// waited for begins to step: its step may be anywhere in a round.
  [[nodiscard]] bool stepped(int optimizer, std::size_t attached) {
    const bool is_gone = leader_ && since_ >= kPatience * longest_round_;
    const bool is_new = leader_ && attached > attached_;
    const bool is_late = leader_ && !steps_.contains(optimizer);
    if (is_gone || is_new || is_late) {
      steps_.clear();
      leader_.reset();
      since_ = 0;
      longest_round_ = 1;
    }
    attached_ = attached;
    if (is_late && !is_new) return false;
    const std::int64_t steps = ++steps_[optimizer];
    if (!leader_ && (steps_.size() >= attached || steps >= kPatience)) leader_ = optimizer;
    ++since_;
    if (leader_ != optimizer) return false;
    longest_round_ = std::max(longest_round_, since_);
    since_ = 0;
    return true;
  }
  /// Most steps of any optimizer from one step of the leader to the next.
  [[nodiscard]] std::int64_t longest_round() const noexcept { return longest_round_; }

 private:
  std::map<int, std::int64_t> steps_;  ///< since they chose last
  std::optional<int> leader_;
  std::size_t attached_ = 0;
  std::int64_t since_ = 0;  ///< the leader's latest step, in steps of any
  std::int64_t longest_round_ = 1;
};

}  // namespace gradvane::agent
