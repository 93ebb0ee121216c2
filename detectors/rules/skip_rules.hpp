#pragma once
// Steps that change nothing: a gradient scaler that keeps overflowing, and skips that no one speaks
// of.
//
// Overflow: `overflow_streak` steps in a row that a gradient scaler skipped. A scale that starts at
// 65,536 is often too high for the first few; it heals when a step is taken, and the incident
// closes after kCloseAfter of them. What is still skipped where a scale of 65,536 would be down to
// 1 is no overflow, and the non-finite detector has it. Skipped: at least half of the last kWindow
// steps changed nothing (a scaler that swallows NaN now and then under bf16, where nothing
// overflows; a loop that drops bad batches). Skips that another incident explains do not count. It
// clears when a tenth or less of them did. Bound: a step that the governor skipped because its
// gradient norm is above `norm_bound`. The incident closes after kCloseAfter steps that were not
// skipped for that.
#include <array>
#include <cstddef>
#include <optional>

#include "detectors/incident_slot.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

struct SkipSettings {
  int overflow_streak = 8;
  double norm_bound = 0;  ///< 0: there is none
};

class SkipRules {
  /// All that may hold an incident. First, so that its type is known below.
  template <typename Rules>
  static auto slots(Rules& rules) {
    return std::array{&rules.overflow_, &rules.skipped_, &rules.bound_};
  }

 public:
  static constexpr int kWindow = 50;
  static constexpr int kMany = kWindow / 2;
  static constexpr int kFew = kWindow / 10;
  static constexpr int kCloseAfter = 10;

  /// `book` outlives it.
  SkipRules(std::int32_t rank, const SkipSettings& settings, double cooldown_seconds,
            IncidentBook& book, Report report);

  /// From the next step on. A streak stays as long as it was.
  void change(const SkipSettings& settings, const Moment& now) {
    settings_ = settings;
    for (IncidentSlot* slot : slots(*this)) slot->drop_if_not_judged(now, report_);
  }
  /// Judges one step of one optimizer; `is_explained`: an incident that is open says why it was
  /// skipped. Throws only what `report` throws.
  void observe(const record::StepRecord& step, bool is_explained);
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const {
    for (const IncidentSlot* slot : slots(*this)) slot->tell_open(tell);
  }

 private:
  void judge_overflow(const record::StepRecord& step);
  void judge_bound(const record::StepRecord& step);
  void judge_skipped(const record::StepRecord& step, bool is_explained);

  SkipSettings settings_;
  IncidentSlot overflow_;
  IncidentSlot skipped_;
  IncidentSlot bound_;
  Report report_;
  std::optional<double> scale_before_;       ///< the streak in hand
  std::array<bool, kWindow> was_skipped_{};  ///< the last steps, as a ring
  std::size_t next_ = 0;
  int skips_ = 0;  ///< in the ring
};

}  // namespace gradvane::detectors
