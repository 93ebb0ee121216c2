#include "detectors/nonfinite.hpp"

#include <algorithm>
#include <string>

#include "record/names.hpp"

namespace gradvane::detectors {
namespace {

using record::Site;

std::string describe(const record::Incident& incident, Site site,
                     const record::NonfiniteCounts& counts) {
  std::string sentence = "Step " + std::to_string(incident.first_step) + ": ";
  if (site == Site::loss) {
    sentence += "the loss";
  } else {
    sentence += std::string(site == Site::grad ? "the gradient" : "the weight");
    if (!incident.param.empty()) sentence += " of " + incident.param;
  }
  if (incident.first) {
    sentence += " became " + std::string(name_of(incident.first->kind));
    if (incident.first->element >= 0 && site != Site::loss)
      sentence += " at element " + std::to_string(incident.first->element);
  } else {
    sentence += " became non-finite";
  }
  sentence += " (" + std::to_string(counts[0]) + " NaN, " + std::to_string(counts[1]) + " +Inf, " +
              std::to_string(counts[2]) + " -Inf in that step).";
  return sentence;
}

}  // namespace

void NonfiniteDetector::observe(const record::StepRecord& step, const record::ModelInfo& model) {
  // The order in which they come about within a step.
  for (const Site site : {Site::loss, Site::grad, Site::weight}) judge(site, step, model);
}

void NonfiniteDetector::judge(Site site, const record::StepRecord& step,
                              const record::ModelInfo& model) {
  const auto s = static_cast<std::size_t>(site);
  if (!step.site_measured[s].value_or(false)) return;
  if (site == Site::grad && step.is_handled_overflow()) return;
  const record::NonfiniteCounts& counts = step.nonfinite[s];
  const bool bad = std::any_of(counts.begin(), counts.end(), [](auto n) { return n > 0; });
  const auto describe_it = [&](record::Incident& incident) {
    if (step.first_by_site[s]) {
      incident.first = step.first_by_site[s];
      const auto param = incident.first->param;
      if (param >= 0 && static_cast<std::size_t>(param) < model.params.size())
        incident.param = model.params[static_cast<std::size_t>(param)].name;
    }
    incident.evidence = describe(incident, site, counts);
  };
  slots_[s].judge(bad, step, describe_it, report_);
}

}  // namespace gradvane::detectors
