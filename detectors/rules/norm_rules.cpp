#include "detectors/rules/norm_rules.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "detectors/number_words.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;

constexpr double kMomentum = 0.99;
constexpr double kTiny = 1e-8;  // no norm below it is told from zero

}  // namespace

NormRules::NormRules(std::int32_t rank, const NormSettings& settings, double cooldown_seconds,
                     IncidentBook& book, Report report)
    : settings_(settings),
      exploding_(IncidentClass::grad_exploding, rank, {kInARow, kCloseAfter, cooldown_seconds},
                 book),
      drift_(IncidentClass::grad_norm_drift, rank, {kDriftInARow, kCloseAfter, cooldown_seconds},
             book),
      report_(std::move(report)) {}

void NormRules::observe(const record::StepRecord& step) {
  if (!step.grad_norm || !(*step.grad_norm >= 0) || step.has_nonfinite(record::Site::grad)) return;
  const bool explodes = judge_exploding(step, *step.grad_norm);
  if (!std::isfinite(*step.grad_norm)) return;
  judge_drift(step, *step.grad_norm, !explodes && !exploding_.is_open());
  if (!explodes) accepted_.add(*step.grad_norm);
}

bool NormRules::judge_exploding(const record::StepRecord& step, double norm) {
  const double median = accepted_.median();
  const bool has_history = accepted_.size() >= kMinHistory;
  const bool explodes =
      !std::isfinite(norm) || (has_history && norm > settings_.factor * std::max(median, kTiny));
  if (!exploding_.is_judged()) return explodes;
  if (explodes && std::isfinite(norm) && exploding_.bad_in_a_row() + 1 >= kSettleAfter) {
    accepted_.clear();
    mean_.reset();
    norms_ = 0;
    exploding_.close(step, report_);
    return false;
  }
  exploding_.judge(
      explodes, step,
      [&](record::Incident& incident) {
        incident.evidence =
            "Step " + std::to_string(step.run_step) + ": the gradient norm is " + words_of(norm);
        if (has_history)
          incident.evidence += ", " + words_of(norm / std::max(median, kTiny)) +
                               " times the median of the " + std::to_string(accepted_.size()) +
                               " before (" + words_of(median) + ")";
        incident.evidence += ", for " + std::to_string(kInARow) + " steps in a row.";
      },
      report_);
  return explodes;
}

void NormRules::judge_drift(const record::StepRecord& step, double norm, bool is_judged) {
  if (!mean_) mean_ = norm;
  const double mean = *mean_;
  if (is_judged && norms_ >= kMinDrift)
    drift_.judge(
        std::abs(norm - mean) / (mean + kTiny) > settings_.drift, step,
        [&](record::Incident& incident) {
          incident.evidence = "Step " + std::to_string(step.run_step) + ": the gradient norm is " +
                              words_of(norm) + "; its running mean is " + words_of(mean) +
                              ", and it has been that far away for " +
                              std::to_string(kDriftInARow) + " steps.";
        },
        report_);
  if (!is_judged) return;  // an explosion must not become the mean
  mean_ = kMomentum * mean + (1 - kMomentum) * norm;
  ++norms_;
}

}  // namespace gradvane::detectors
