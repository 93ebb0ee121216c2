#include "agent/worker/step_intake.hpp"

#include <algorithm>

#include "record/clocks.hpp"

namespace gradvane::agent {

void StepIntake::collect() {
  collectors::StepFacts facts;
  for (;;) {
    const collectors::Handoff::NextFacts next = handoff_.next(facts);
    if (!next.found) return;
    if (facts.captured) {
      gatherer_.note_captured(facts);
    } else {
      pending_.push_back({.facts = facts, .lost = next.lost, .taken = handoff_.steps_taken()});
    }
  }
}

/// Closes the step, if it must not wait for longer. False: it goes on waiting.
bool StepIntake::make_whole(Pending& step, bool all) {
  if (step.is_whole) return true;
  const auto now = std::chrono::steady_clock::now();
  if (!step.arrived) {
    step.arrived = now;
    step.is_urgent = gatherer_.found_nonfinite();
  }
  const bool may_wait =
      !all && !step.is_urgent && !handoff_.is_hurried(step.taken) && now - *step.arrived < kOpenFor;
  if (may_wait && handoff_.newest().is_open(step.taken)) return false;
  if (!handoff_.newest().close(step.taken)) return false;
  handoff_.newest().add_to(step.taken, step.facts);
  return step.is_whole = true;
}

std::optional<StepIntake::Step> StepIntake::next(bool all) {
  if (pending_.empty() || !(gatherer_.ready(pending_.front().facts) || all)) return std::nullopt;
  if (!make_whole(pending_.front(), all)) return std::nullopt;
  // What was logged behind it may be on a device too.
  if (!(gatherer_.ready(pending_.front().facts) || all)) return std::nullopt;
  if (auto before = replay(collectors::SlotGatherer::Look::behind)) return before;
  Pending step = pending_.front();
  pending_.pop_front();
  // A graph may have taken steps that the training thread did not count.
  std::int64_t& last = last_steps_[step.facts.optimizer];
  step.facts.step = std::max(step.facts.step, last + 1);
  if (!step.facts.superseded) last = step.facts.step;
  return gathered(step, gatherer_.take(step.facts));
}

std::optional<StepIntake::Step> StepIntake::next_replay() {
  return replay(collectors::SlotGatherer::Look::further);
}

/// Steps that no hook saw: a graph took them.
std::optional<StepIntake::Step> StepIntake::replay(collectors::SlotGatherer::Look look) {
  auto facts = gatherer_.next_replay(look);
  if (!facts) return std::nullopt;
  std::int64_t& last = last_steps_[facts->optimizer];
  const std::int64_t captured = facts->step;
  facts->step = last = last == 0 ? captured : last + 1;
  facts->run_step += facts->step - captured;  // which goes on from other trainings before it
  facts->time = record::unix_time();
  facts->monotonic = record::monotonic_time();
  facts->step_seconds = collectors::kNotMeasured;
  facts->forget_syncs();
  return gathered({.facts = *facts}, gatherer_.take_replay());
}

StepIntake::Step StepIntake::gathered(const Pending& pending, const collectors::StepSlots& slots) {
  return {.facts = pending.facts,
          .slots = slots,
          .lost = pending.lost,
          .lost_reads = gatherer_.take_lost_reads(),
          .totals = gatherer_.totals(),
          .taken = pending.taken};
}

}  // namespace gradvane::agent
