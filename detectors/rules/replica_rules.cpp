#include "detectors/rules/replica_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace gradvane::detectors {
namespace {

constexpr std::size_t kNamedRanks = 4;

std::string words_for(const record::ReplicaComparison& comparison) {
  const auto& others = comparison.others;
  const std::size_t named = std::min(others.size(), kNamedRanks);
  std::string ranks = others.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < named; ++i) ranks += (i == 0 ? "" : ", ") + std::to_string(others[i]);
  if (others.size() > named) ranks += " and " + std::to_string(others.size() - named) + " more";
  return "Step " + std::to_string(comparison.run_step) + ": " + ranks +
         (others.size() == 1 ? " has" : " have") + " other weights than rank " +
         std::to_string(comparison.rank) +
         (comparison.param.empty() ? "; which parameter differs is not known."
                                   : "; " + comparison.param + " is the first that differs.") +
         " They were equal at step " + std::to_string(comparison.equal_at) + ".";
}

}  // namespace

ReplicaRules::ReplicaRules(std::int32_t rank, IncidentBook& book, Report report)
    : slot_(record::IncidentClass::replica_mismatch, rank, {1, 1, 0}, book),
      report_(std::move(report)) {}

void ReplicaRules::compared(const record::ReplicaComparison& comparison, const Moment& seen) {
  slot_.judge(
      comparison.differ, seen,
      [&](record::Incident& incident) {
        incident.evidence = words_for(comparison);
        // They were compared before the update of that step.
        incident.last_good_step = std::max<std::int64_t>(comparison.equal_at - 1, 0);
      },
      report_);
}

}  // namespace gradvane::detectors
