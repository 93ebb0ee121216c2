#include "agent/worker/step_pipeline.hpp"

#include <string>
#include <thread>
#include <utility>

#include "collectors/process_memory.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kMemoryEvery = 1s;
constexpr auto kDeviceBudget = 2s;  ///< for what is still in flight at the end

}  // namespace

StepPipeline::StepPipeline(const Options& options, collectors::Handoff& handoff,
                           collectors::NormExchange* exchange, Readers readers)
    : handoff_(handoff),
      readers_(readers),
      intake_(handoff),
      builder_({options.vanishing_threshold, options.exploding_threshold}),
      held_(exchange),
      utilization_(options.flops_per_token, options.peak_flops),
      names_(handoff.user_metrics()),
      model_(std::make_shared<record::ModelInfo>()) {}

void StepPipeline::announce_model() {
  if (readers_.status.state() != record::RunState::starting) return;
  const auto newest = handoff_.newest_model();
  if (newest == nullptr || newest == model_) return;
  model_ = newest;
  (void)readers_.outlets.exporters().set_model(model_);
}

bool StepPipeline::drain() {
  readers_.syncs.collect();
  intake_.collect();
  note_device_failure();
  bool found = export_ready(!readers_.status.device_failure().empty());
  found |= export_held(false);
  if (is_idle()) {
    found |= export_replays();
    readers_.progress.note_exported(handoff_.steps_taken());
  }
  return found || !is_idle();
}

void StepPipeline::drain_late() noexcept try {
  (void)drain();
} catch (...) {  // no memory for a step: the next one may fit
  readers_.outlets.metrics().add(record::Metric::records_dropped_total, 1, {"ring_overrun"});
}

void StepPipeline::settle() {
  const auto until = Clock::now() + kDeviceBudget;
  while (!is_idle() && Clock::now() < until) {
    std::this_thread::sleep_for(1ms);
    (void)drain();
  }
  (void)export_ready(true);
  (void)export_held(true);
}

/// Exports the steps whose slots have arrived, in order; with `all`, the others too, with what
/// there is.
bool StepPipeline::export_ready(bool all) {
  bool found = false;
  while (const auto step = intake_.next(all)) {
    export_step(*step);
    found = true;
    if (step->taken != 0 && held_.empty()) readers_.progress.note_exported(step->taken);
  }
  return found;
}

bool StepPipeline::export_replays() {
  bool found = false;
  while (const auto step = intake_.next_replay()) {
    export_step(*step);
    found = true;
  }
  return found;
}

/// Those whose norm over all processes has come, or will not.
bool StepPipeline::export_held(bool all) {
  bool found = false;
  while (const auto held = held_.next(all)) {
    export_record(held->record, held->detail, held->model);
    found = true;
  }
  return found;
}

void StepPipeline::export_step(const StepIntake::Step& step) {
  const collectors::StepFacts& facts = step.facts;
  record::StepRecord record = builder_.build(facts, step.slots, step.totals);
  record.dropped_before = static_cast<std::int64_t>(step.lost);
  // A read that was lost tells nothing.
  if (facts.left_to_device > 0 && facts.skipped == record::SkipReason::none &&
      record.site_measured[index_of(record::Site::grad)])
    readers_.incidents.note_device_outcome(record, facts.captured ? 0 : facts.left_to_device);
  if (facts.superseded && !record.first_nonfinite) return;  // read once more since, or not needed
  if (step.lost_reads > 0) count_lost_reads(step.lost_reads);
  if (step.slots.plan != nullptr) note_groups(*step.slots.plan);
  readers_.syncs.book(facts, record);
  record.model_flops_utilization = utilization_.add(record);
  const auto model = builder_.model() != nullptr ? with_names(builder_.model(), record) : model_;
  const auto now = Clock::now();
  readers_.status.note_arrival(now);
  if (facts.refused_names > 0)
    readers_.outlets.metrics().add(record::Metric::records_dropped_total, facts.refused_names,
                                   {"user_metric_limit"});
  if (now - last_memory_ >= kMemoryEvery) {
    last_memory_ = now;
    record.process_resident_bytes = collectors::resident_bytes();
  }
  if (held_.must_hold(record))
    held_.hold({record, builder_.detail(), model, facts, {}});
  else
    export_record(record, builder_.detail(), model);
}

/// The model together with the names of the custom metrics that a step has. Names come at any time; they are another
/// version of the model for all who show them.
std::shared_ptr<const record::ModelInfo> StepPipeline::with_names(
    std::shared_ptr<const record::ModelInfo> model, const record::StepRecord& record) {
  if (names_->size() < static_cast<std::size_t>(record.user_count))
    names_ = handoff_.user_metrics();
  if (names_->empty()) return model;
  if (unnamed_ != model || named_->user_metrics.size() != names_->size()) {
    auto named = std::make_shared<record::ModelInfo>(*model);
    named->user_metrics = *names_;
    named->id += static_cast<std::uint64_t>(names_->size()) << 32;
    unnamed_ = std::move(model);
    named_ = std::move(named);
  }
  return named_;
}

void StepPipeline::count_lost_reads(std::int64_t reads) {
  readers_.outlets.metrics().add(record::Metric::records_dropped_total, static_cast<double>(reads),
                                 {"read_lost"});
  if (std::exchange(has_said_lost_, true)) return;
  readers_.callbacks.log(
      "steps came faster than they could be taken: some have no norms; ring_slots makes room for "
      "more, and gradvane_records_dropped_total{reason=\"read_lost\"} counts them");
}

void StepPipeline::note_groups(const collectors::ReadPlan& plan) {
  if (plan.note == said_of_groups_) return;
  said_of_groups_ = plan.note;
  if (!plan.note.empty()) readers_.callbacks.log(plan.note);
}

void StepPipeline::export_record(const record::StepRecord& record, const record::StepDetail& detail,
                                 const std::shared_ptr<const record::ModelInfo>& model) {
  if (model != model_) {
    model_ = model;
    (void)readers_.outlets.exporters().set_model(model_);
  }
  (void)readers_.outlets.exporters().export_step(record, detail, *model_);
  readers_.incidents.judge(record, detail, *model_);
  readers_.status.note(record, *model_);
}

void StepPipeline::note_device_failure() {
  if (!readers_.status.device_failure().empty()) return;
  std::string failure = handoff_.device_failure();
  if (failure.empty()) return;
  readers_.callbacks.log(failure + "; its tensors are no longer read");
  readers_.status.note_device_failure(std::move(failure));
}

void StepPipeline::count_failures() {
  if (const int failures = held_.take_failures(); failures > 0)
    readers_.outlets.metrics().add(record::Metric::export_failures_total, failures,
                                   {"norm_exchange"});
}

}  // namespace gradvane::agent
