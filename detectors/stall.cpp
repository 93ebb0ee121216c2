#include "detectors/stall.hpp"

#include <string>
#include <utility>

#include "detectors/number_words.hpp"

namespace gradvane::detectors {

StallDetector::StallDetector(std::int32_t rank, double after_seconds, IncidentBook& book,
                             Report report)
    : limit_(after_seconds),
      slot_(record::IncidentClass::stalled, rank, {1, 1, 0}, book),
      report_(std::move(report)) {}

void StallDetector::step(const Moment& now, std::optional<double> step_seconds) {
  last_step_ = now;
  limit_.add(step_seconds);
  slot_.judge(false, now, {}, report_);
}

void StallDetector::tick(const Moment& now, double paused_seconds) {
  if (!last_step_ || !slot_.is_judged() || slot_.is_open()) return;
  const double since = now.monotonic - last_step_->monotonic;
  if (!limit_.is_over(since - paused_seconds)) return;
  Moment moment = now;
  moment.run_step = last_step_->run_step;
  slot_.judge(
      true, moment,
      [&](record::Incident& incident) {
        incident.evidence = "No step has ended for " + words_of(since) + " seconds, since step " +
                            std::to_string(last_step_->run_step) + ".";
        if (paused_seconds >= 1)
          incident.evidence += " Of these, " + words_of(paused_seconds) +
                               " seconds of evaluations and checkpoints do not count.";
      },
      report_);
}

}  // namespace gradvane::detectors
