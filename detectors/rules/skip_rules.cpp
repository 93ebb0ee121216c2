#include "detectors/rules/skip_rules.hpp"

#include <string>
#include <utility>

#include "detectors/number_words.hpp"
#include "record/names.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::SkipReason;

}  // namespace

SkipRules::SkipRules(std::int32_t rank, const SkipSettings& settings, double cooldown_seconds,
                     IncidentBook& book, Report report)
    : settings_(settings),
      overflow_(IncidentClass::amp_overflow, rank,
                {settings.overflow_streak, kCloseAfter, cooldown_seconds}, book),
      skipped_(IncidentClass::skipped_steps, rank, {1, kCloseAfter, cooldown_seconds}, book),
      bound_(IncidentClass::grad_norm_bound, rank, {1, kCloseAfter, cooldown_seconds}, book),
      report_(std::move(report)) {}

void SkipRules::observe(const record::StepRecord& step, bool is_explained) {
  judge_overflow(step);
  judge_bound(step);
  judge_skipped(step, is_explained || overflow_.is_open() || bound_.is_open());
}

void SkipRules::judge_overflow(const record::StepRecord& step) {
  const bool overflowed = step.skipped == SkipReason::amp_overflow;
  if (overflowed && step.overflow_persists) return;  // no longer an overflow
  if (overflowed && overflow_.bad_in_a_row() == 0) scale_before_ = step.loss_scale;
  overflow_.judge(
      overflowed, step,
      [&](record::Incident& incident) {
        incident.evidence = "Step " + std::to_string(step.run_step) +
                            ": the gradient scaler has skipped " +
                            std::to_string(settings_.overflow_streak) + " steps in a row";
        if (scale_before_ && step.loss_scale)
          incident.evidence += ", at scales from " + words_of(*scale_before_) + " down to " +
                               words_of(*step.loss_scale);
        incident.evidence += '.';
      },
      report_);
}

void SkipRules::judge_bound(const record::StepRecord& step) {
  const bool is_finite =
      !step.has_nonfinite(record::Site::loss) && !step.has_nonfinite(record::Site::grad);
  const bool is_above = step.skipped == SkipReason::governor && is_finite && step.grad_norm &&
                        settings_.norm_bound > 0 && !(*step.grad_norm <= settings_.norm_bound);
  bound_.judge(
      is_above, step,
      [&](record::Incident& incident) {
        incident.evidence = "Step " + std::to_string(step.run_step) + ": the gradient norm is " +
                            words_of(*step.grad_norm) + ", above skip_norm, which is " +
                            words_of(settings_.norm_bound) +
                            ". Gradvane skipped the step: it changed no weights.";
      },
      report_);
}

void SkipRules::judge_skipped(const record::StepRecord& step, bool is_explained) {
  const bool is_skip = step.skipped != SkipReason::none;
  if (is_skip && is_explained) return;
  skips_ += (is_skip ? 1 : 0) - (was_skipped_[next_] ? 1 : 0);
  was_skipped_[next_] = is_skip;
  next_ = (next_ + 1) % kWindow;
  if (skips_ > kFew && skips_ < kMany) return;  // neither
  skipped_.judge(
      skips_ >= kMany, step,
      [&](record::Incident& incident) {
        incident.evidence = "Step " + std::to_string(step.run_step) + ": " +
                            std::to_string(skips_) + " of the last " + std::to_string(kWindow) +
                            " steps changed nothing (" + std::string(name_of(step.skipped)) + ").";
      },
      report_);
}

}  // namespace gradvane::detectors
