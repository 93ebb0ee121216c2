#pragma once
// Spikes, divergence and a fall back to random guessing, judged by the loss alone.
//
// Each finite loss is judged against the `window` accepted ones before it, in this order (the first that
// applies decides; the order and the defaults are those of the rollback governor in esper-lite):
//   1. not finite: left to the non-finite detector; never part of the history.
//   2. history of `min_history` or more, its mean below 0.6 G, and |loss - G| < 0.065 G: back to random
//      guessing, where G, the loss of a random guess (ln of the number of classes), is known.
//   3. history shorter than that: accepted.
//   4. loss > mean + sigma * deviation, and loss > mean + (ratio - 1) * |mean|, and loss > mean + kFloor *
//      |mean of the first ones|, and, where `absolute` is set, loss > absolute: an outlier, which is not
//      accepted. `in_a_row` of them are a divergence; a row that ends sooner was a spike, told when it ends.
//   5. otherwise: accepted.
// The floor is ours: a run that has learned all there is has losses next to zero, which jump tenfold for
// nothing. For a positive mean the second test of 4 is loss > ratio * mean; a negative mean needs |mean|. After
// kSettleAfter outliers in a row the run has another level: they become the history, and the incident
// closes.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "detectors/incident_slot.hpp"
#include "detectors/window.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

struct LossSettings {
  int window = 20;
  int min_history = 10;
  double sigma = 6;
  double ratio = 3;
  std::optional<double> absolute;
  int in_a_row = 3;
  std::optional<double> random_guess;
};

/// What a loss may not exceed.
struct LossBound {
  double value = 0;
  std::string_view from{};  ///< the option that it follows from, or words
};

class LossRules {
  /// All that may hold an incident. First, so that its type is known below.
  template <typename Rules>
  static auto slots(Rules& rules) {
    return std::array{&rules.spike_, &rules.divergence_, &rules.random_guess_};
  }

 public:
  static constexpr double kFloor = 0.05;
  static constexpr int kCloseAfter = 10;
  static constexpr int kSettleAfter = 1000;

  /// `book` outlives it.
  LossRules(std::int32_t rank, const LossSettings& settings, double cooldown_seconds,
            IncidentBook& book, Report report);

  /// From the next step on. The window stays as long as it was, and a row as well.
  void change(const LossSettings& settings, const Moment& now) {
    settings_ = settings;
    for (IncidentSlot* slot : slots(*this)) slot->drop_if_not_judged(now, report_);
    if (!settings.random_guess) random_guess_.drop(now, report_);
  }
  /// Judges one step of one optimizer. Throws only what `report` throws, and std::bad_alloc.
  void observe(const record::StepRecord& step);
  /// The training went back: its latest losses are of steps that are undone.
  void went_back(const Moment& now) {
    outliers_ = 0;
    for (IncidentSlot* slot : slots(*this)) slot->went_back(now, report_);
  }
  /// Whether a divergence may be about to open.
  [[nodiscard]] bool has_outliers() const noexcept { return outliers_ > 0; }
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const {
    for (const IncidentSlot* slot : slots(*this)) slot->tell_open(tell);
  }

 private:
  /// How high a loss may be, given its history: the highest of several bounds.
  [[nodiscard]] LossBound bound() const noexcept;
  [[nodiscard]] bool has_history() const noexcept;
  [[nodiscard]] bool is_random_guess(double loss) const noexcept;
  void judge_guess(bool is_guess, const record::StepRecord& step);
  void note_outlier(const record::StepRecord& step, double loss);
  void end_of_outliers(const record::StepRecord& step);

  LossSettings settings_;
  IncidentSlot spike_;
  IncidentSlot divergence_;
  IncidentSlot random_guess_;
  Report report_;
  Window accepted_;
  double first_mean_ = 0;  ///< of the first `window`, or of those so far
  int first_count_ = 0;
  // Of the outliers in a row.
  int outliers_ = 0;
  std::int64_t first_outlier_ = 0;  ///< run step
  double worst_ = 0;
  double mean_before_ = 0;
  LossBound bound_before_{};
};

}  // namespace gradvane::detectors
