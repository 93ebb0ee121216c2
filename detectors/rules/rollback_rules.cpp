#include "detectors/rules/rollback_rules.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "detectors/number_words.hpp"

namespace gradvane::detectors {
namespace {

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

std::string words_for(const record::Rollback& rollback) {
  std::string text = "Step " + std::to_string(rollback.run_step) +
                     ": the training went back to the state after step " +
                     std::to_string(rollback.to_step) + " (snapshot " +
                     std::to_string(rollback.generation) + ", " +
                     words_of(rollback.snapshot_age_seconds) + " s old).";
  const bool is_asked = rollback.reason == record::RollbackReason::requested;
  text += (is_asked ? " The script asked for it: " : " The reason: ") + rollback.why + ".";
  text += " Lost: " + counted(rollback.steps_lost(), "step", "steps");
  if (rollback.batches_lost) text += ", " + counted(*rollback.batches_lost, "batch", "batches");
  text += '.';
  if (rollback.optimizer == "reset") text += " The optimizer's state was reset.";
  if (rollback.optimizer == "keep") text += " The optimizer's state was kept.";
  if (rollback.lr_factor != 1)
    text += " Learning rates were multiplied by " + words_of(rollback.lr_factor) + ".";
  return text;
}

}  // namespace

RollbackRules::RollbackRules(std::int32_t rank, IncidentBook& book, Report report)
    : slot_(record::IncidentClass::rollback, rank, {1, 1, 0}, book), report_(std::move(report)) {}

void RollbackRules::observe(const record::Rollback& rollback, const Moment& seen) {
  slot_.judge(
      true, seen, [&](record::Incident& incident) { incident.evidence = words_for(rollback); },
      report_);
  slot_.close(seen, report_);
}

}  // namespace gradvane::detectors
