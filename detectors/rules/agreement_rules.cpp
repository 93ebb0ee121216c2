#include "detectors/rules/agreement_rules.hpp"

#include <string>
#include <utility>

namespace gradvane::detectors {

AgreementRules::AgreementRules(std::int32_t rank, IncidentBook& book, Report report)
    : slot_(record::IncidentClass::agreement_lost, rank, {1, 1, 0}, book),
      report_(std::move(report)) {}

void AgreementRules::lost(std::string_view why, const Moment& seen) {
  slot_.judge(
      true, seen,
      [&](record::Incident& incident) {
        incident.evidence =
            "After step " + std::to_string(seen.run_step) +
            ": ranks do not agree on steps any more, and each decides alone: " + std::string(why) +
            ".";
      },
      report_);
}

}  // namespace gradvane::detectors
