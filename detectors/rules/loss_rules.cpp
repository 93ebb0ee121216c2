#include "detectors/rules/loss_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "detectors/number_words.hpp"

namespace gradvane::detectors {
namespace {

using detectors::words_of;
using record::IncidentClass;

constexpr double kLearned = 0.6;      // of a random guess's loss: it has learned
constexpr double kNearGuess = 0.065;  // of it: this is one

std::string words_of(const LossBound& bound) {
  return detectors::words_of(bound.value) + " (" + std::string(bound.from) + ")";
}

}  // namespace

LossRules::LossRules(std::int32_t rank, const LossSettings& settings, double cooldown_seconds,
                     IncidentBook& book, Report report)
    : settings_(settings),
      spike_(IncidentClass::loss_spike, rank, {1, 1, cooldown_seconds}, book),
      divergence_(IncidentClass::loss_divergence, rank, {1, kCloseAfter, cooldown_seconds}, book),
      random_guess_(IncidentClass::random_guess, rank, {1, kCloseAfter, cooldown_seconds}, book),
      report_(std::move(report)),
      accepted_(static_cast<std::size_t>(settings.window)) {}

void LossRules::observe(const record::StepRecord& step) {
  if (!step.loss || !std::isfinite(*step.loss)) return;
  const double loss = *step.loss;
  const bool is_guess = is_random_guess(loss);
  judge_guess(is_guess, step);
  if (is_guess) return;
  if (has_history() && loss > bound().value) return note_outlier(step, loss);
  end_of_outliers(step);
  accepted_.add(loss);
  if (first_count_ >= settings_.window) return;
  ++first_count_;
  first_mean_ += (loss - first_mean_) / first_count_;
}

bool LossRules::has_history() const noexcept {
  return accepted_.size() >= static_cast<std::size_t>(settings_.min_history);
}

bool LossRules::is_random_guess(double loss) const noexcept {
  if (!settings_.random_guess || !random_guess_.is_judged() || !has_history()) return false;
  const double guess = *settings_.random_guess;
  return accepted_.mean() < kLearned * guess && std::abs(loss - guess) < kNearGuess * guess;
}

void LossRules::judge_guess(bool is_guess, const record::StepRecord& step) {
  if (!settings_.random_guess) return;
  random_guess_.judge(
      is_guess, step,
      [&](record::Incident& incident) {
        incident.evidence = "Step " + std::to_string(step.run_step) + ": the loss is " +
                            words_of(*step.loss) + ", that of a random guess (" +
                            words_of(*settings_.random_guess) + "); it had been " +
                            words_of(accepted_.mean()) + ".";
      },
      report_);
}

LossBound LossRules::bound() const noexcept {
  const double mean = accepted_.mean();
  const double absolute = settings_.absolute.value_or(-std::numeric_limits<double>::infinity());
  return std::max({LossBound{mean + settings_.sigma * accepted_.deviation(), "loss_sigma"},
                   LossBound{mean + (settings_.ratio - 1) * std::abs(mean), "loss_ratio"},
                   LossBound{absolute, "loss_absolute"},
                   LossBound{mean + kFloor * std::abs(first_mean_), "the loss at the start"}},
                  [](const LossBound& a, const LossBound& b) { return a.value < b.value; });
}

void LossRules::note_outlier(const record::StepRecord& step, double loss) {
  if (outliers_ == 0) {
    first_outlier_ = step.run_step;
    worst_ = loss;
    mean_before_ = accepted_.mean();
    bound_before_ = bound();
  }
  ++outliers_;
  worst_ = std::max(worst_, loss);
  if (outliers_ < settings_.in_a_row) return;
  if (outliers_ >= kSettleAfter) {
    accepted_.clear();
    accepted_.add(loss);
    outliers_ = 0;
    divergence_.close(step, report_);
    return;
  }
  divergence_.judge(
      true, step,
      [&](record::Incident& incident) {
        incident.first_step = first_outlier_;
        incident.steps = outliers_;
        incident.evidence = "Step " + std::to_string(first_outlier_) + ": the loss rose to " +
                            words_of(worst_) + " and stayed up for " + std::to_string(outliers_) +
                            " steps; the mean before was " + words_of(mean_before_) +
                            ", the limit " + words_of(bound_before_) + ".";
      },
      report_);
}

void LossRules::end_of_outliers(const record::StepRecord& step) {
  const int outliers = std::exchange(outliers_, 0);
  divergence_.judge(false, step, {}, report_);
  if (outliers == 0 || outliers >= settings_.in_a_row) return;
  spike_.judge(
      true, step,
      [&](record::Incident& incident) {
        incident.first_step = first_outlier_;
        incident.last_step = first_outlier_ + outliers - 1;
        incident.steps = outliers;
        incident.evidence = "Step " + std::to_string(first_outlier_) + ": a loss of " +
                            words_of(worst_) + ", and back; the mean before was " +
                            words_of(mean_before_) + ", the limit " + words_of(bound_before_) + ".";
      },
      report_);
  spike_.close(step, report_);
}

}  // namespace gradvane::detectors
