#include "exporters/replay/story.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "record/incident_classes.hpp"
#include "record/saturating.hpp"

namespace gradvane::exporters::recording {

using record::RunState;
using record::Site;

namespace {

constexpr std::size_t kMostMoved = 20;

/// Worst first.
record::Gravity gravity_of(const record::Incident& incident) {
  return info_of(incident.kind).gravity;
}

bool is_bad(const record::StepRecord& record) {
  return record.first_nonfinite && !record.is_handled_overflow();
}

/// The last of several records of one run step stands for it: there is one for each optimizer.
std::size_t index_of_step(const Recording& recording, std::int64_t run_step) {
  std::size_t found = recording.steps.size();
  for (std::size_t i = 0; i < recording.steps.size(); ++i)
    if (recording.steps[i].record.run_step <= run_step) found = i;
  return found;
}

std::optional<FirstBadStep> first_bad_step(const Recording& recording) {
  for (const RecordedStep& step : recording.steps) {
    if (!is_bad(step.record)) continue;
    const record::FirstNonfinite& what = *step.record.first_nonfinite;
    return FirstBadStep{step.record.run_step, what, step.model->param_name(what.param)};
  }
  return std::nullopt;
}

std::optional<Normal> normal_before(const Recording& recording, std::int64_t fault) {
  Normal normal;
  std::vector<double> loss;
  std::vector<double> norm;
  std::vector<double> seconds;
  const auto put = [](std::vector<double>& to, const std::optional<double>& value) {
    if (value) to.push_back(*value);
  };
  for (const RecordedStep& step : recording.steps) {
    const record::StepRecord& record = step.record;
    if (record.run_step >= fault) break;
    if (normal.first_step == 0) normal.first_step = record.run_step;
    normal.last_step = record.run_step;
    put(loss, record.loss);
    if (!record.has_nonfinite(Site::grad)) put(norm, record.grad_norm);  // else it is of a part
    put(seconds, record.step_seconds);
  }
  if (normal.first_step == 0) return std::nullopt;
  normal.loss = spread_of(std::move(loss));
  normal.grad_norm = spread_of(std::move(norm));
  normal.step_seconds = spread_of(std::move(seconds));
  return normal;
}

After after_fault(const Recording& recording, std::int64_t fault) {
  After after;
  for (const RecordedStep& step : recording.steps) {
    const record::StepRecord& record = step.record;
    if (record.run_step <= fault) continue;
    ++after.steps;
    after.bad += is_bad(record) ? 1 : 0;
    after.skipped += record.skipped != record::SkipReason::none ? 1 : 0;
    if (record.loss) after.last_loss = record.loss;
  }
  return after;
}

/// From the steps, and from the incident where the steps of it have been overwritten.
Weights weights_of(const Recording& recording) {
  Weights weights;
  std::map<std::int32_t, std::int64_t> finite;  // by optimizer
  const auto found = [&](std::int64_t run_step, std::optional<std::int64_t> last_finite) {
    if (weights.found_bad && *weights.found_bad <= run_step) return;
    weights.found_bad = run_step;
    weights.last_finite = last_finite;
  };
  for (const RecordedStep& step : recording.steps) {
    const record::StepRecord& record = step.record;
    if (!record.site_measured[index_of(Site::weight)].value_or(false)) continue;
    const auto before = finite.find(record.optimizer);
    if (record.has_nonfinite(Site::weight))
      found(record.run_step, before == finite.end() ? std::nullopt : std::optional(before->second));
    else
      finite[record.optimizer] = record.run_step;
  }
  for (const record::Incident& incident : recording.incidents)
    for (const record::Appearance& appearance : incident.order)
      if (appearance.site == Site::weight) {
        found(appearance.run_step, appearance.last_finite);
        if (weights.found_bad == appearance.run_step && !weights.last_finite)
          weights.last_finite = appearance.last_finite;
      }
  if (weights.found_bad) return weights;
  for (const auto& [optimizer, run_step] : finite)
    weights.last_finite = std::min(weights.last_finite.value_or(run_step), run_step);
  return weights;
}

void tell_ending(Story& story, const Recording& recording) {
  const auto over = std::ranges::find_if(recording.states, [](const StateFrame& state) {
    return state.state == RunState::finished || state.state == RunState::failed;
  });
  if (over != recording.states.end()) {
    story.ending = over->state == RunState::finished ? Ending::finished : Ending::failed;
    story.reason = over->reason;
  } else if (recording.end) {
    story.ending = recording.end->run_is_over ? Ending::finished : Ending::went_on;
    story.reason = recording.end->reason;
  }
}

}  // namespace

Story story_of(const Recording& recording) {
  Story story;
  story.run = recording.run;
  story.is_ring = recording.is_ring;
  story.damage = recording.damage;
  story.first_bad = first_bad_step(recording);
  for (const record::Incident& incident : recording.incidents) {
    const bool is_graver = !story.broke || gravity_of(incident) < gravity_of(*story.broke);
    if (!is_graver) {
      story.others.push_back(incident);
      continue;
    }
    if (story.broke) story.others.push_back(*story.broke);
    story.broke = incident;
  }
  std::ranges::sort(story.others, {}, &record::Incident::id);
  if (story.broke) story.fault = story.broke->first_step;
  // What was not finite is graver than all else, also where nobody had the time to open an incident.
  if (story.first_bad && (!story.broke || gravity_of(*story.broke) != record::Gravity::nonfinite))
    story.fault = story.first_bad->run_step;
  tell_ending(story, recording);
  if (recording.steps.empty()) return story;

  std::set<std::int64_t> there;
  for (const RecordedStep& step : recording.steps) there.insert(step.record.run_step);
  story.steps = std::ssize(there);
  story.first_step = *there.begin();
  story.last_step = *there.rbegin();
  story.last_time = recording.steps.back().record.time;
  const std::int64_t behind = record::add(story.last_step, 1);
  story.missing = record::subtract(record::subtract(behind, story.first_step), story.steps);
  story.normal = normal_before(recording, story.fault.value_or(behind));
  const std::size_t at = index_of_step(recording, story.fault.value_or(story.last_step));
  story.moved = moved_before(recording, at, kMostMoved);
  story.weights = weights_of(recording);
  if (story.fault) story.after = after_fault(recording, *story.fault);
  return story;
}

}  // namespace gradvane::exporters::recording
