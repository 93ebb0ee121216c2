#pragma once
// The gradient norm against its own history: exploding, and drifting.
//
// Judged is the L2 norm of all gradients before clipping, of steps whose gradients were all finite.
// Exploding: norm > factor * median of the last kHistory accepted norms (kMinHistory at least), in kInARow
// steps in a row; such norms are not accepted. A norm that is itself infinite is exploding, whatever came
// before. After kSettleAfter of them the run has another level, which becomes the history.
// Drift: |norm - ema| / (ema + 1e-8) > threshold in kDriftInARow steps in a row, where ema is the running
// mean with momentum 0.99 before this step, begun with the first norm, judged from kMinDrift norms on: the
// formula of esper-lite. With a threshold of 1 or more only a rise counts, since a fall cannot exceed 1: norms
// fall by orders of magnitude in runs that learn well. Where the norm explodes, that is told, and not a drift
// as well.
#include <array>
#include <cstdint>
#include <optional>

#include "detectors/incident_slot.hpp"
#include "detectors/window.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

struct NormSettings {
  double factor = 10;
  double drift = 2;
};

class NormRules {
  /// All that may hold an incident. First, so that its type is known below.
  template <typename Rules>
  static auto slots(Rules& rules) {
    return std::array{&rules.exploding_, &rules.drift_};
  }

 public:
  static constexpr std::size_t kHistory = 100;
  static constexpr std::size_t kMinHistory = 20;
  static constexpr int kInARow = 3;
  static constexpr int kDriftInARow = 50;
  static constexpr std::int64_t kMinDrift = 200;
  static constexpr int kCloseAfter = 10;
  static constexpr int kSettleAfter = 1000;

  /// `book` outlives it.
  NormRules(std::int32_t rank, const NormSettings& settings, double cooldown_seconds,
            IncidentBook& book, Report report);

  /// From the next step on.
  void change(const NormSettings& settings, const Moment& now) {
    settings_ = settings;
    for (IncidentSlot* slot : slots(*this)) slot->drop_if_not_judged(now, report_);
  }
  /// Judges one step of one optimizer. Throws only what `report` throws, and std::bad_alloc.
  void observe(const record::StepRecord& step);
  /// The training went back: its latest norms are of steps that are undone.
  void went_back(const Moment& now) {
    for (IncidentSlot* slot : slots(*this)) slot->went_back(now, report_);
  }
  /// Whether `grad_exploding` is open or may be about to open.
  [[nodiscard]] bool is_high() const noexcept { return exploding_.bad_in_a_row() > 0; }
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const {
    for (const IncidentSlot* slot : slots(*this)) slot->tell_open(tell);
  }

 private:
  [[nodiscard]] bool judge_exploding(const record::StepRecord& step, double norm);
  void judge_drift(const record::StepRecord& step, double norm, bool is_judged);

  NormSettings settings_;
  IncidentSlot exploding_;
  IncidentSlot drift_;
  Report report_;
  Window accepted_{kHistory};
  std::optional<double> mean_;  ///< running
  std::int64_t norms_ = 0;      ///< that it was made of
};

}  // namespace gradvane::detectors
