#pragma once
// Steps and incidents as the governor gets them.
#include <cstdint>
#include <ostream>

#include "agent/governor/governor.hpp"

namespace gradvane::agent {

inline void PrintTo(Verdict verdict, std::ostream* out) { *out << name_of(verdict); }

}  // namespace gradvane::agent

namespace gradvane::agent::test {

inline StepFinding good(std::int64_t run_step) {
  StepFinding step;
  step.run_step = run_step;
  step.is_measured = true;
  step.norm = 1.0;
  return step;
}
inline StepFinding bad_gradient(std::int64_t run_step) {
  StepFinding step = good(run_step);
  step.gradients_are_bad = true;
  return step;
}
inline StepFinding bad_loss(std::int64_t run_step) {
  StepFinding step = good(run_step);
  step.loss_is_bad = true;
  return step;
}
inline record::Incident incident(record::IncidentClass kind, std::int64_t id = 1) {
  record::Incident opened;
  opened.id = id;
  opened.kind = kind;
  return opened;
}

inline Options with(NonfinitePolicy policy) {
  Options options;
  options.on_nonfinite = policy;
  return options;
}
inline Options on_divergence(DivergencePolicy policy) {
  Options options;
  options.on_divergence = policy;
  return options;
}

}  // namespace gradvane::agent::test
