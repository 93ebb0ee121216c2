// What backward passes tell of a step, and what becomes of gradients that no step was taken with:
// StepRecorder's part for loops that it sees from outside.
#include <algorithm>
#include <cmath>

#include "agent/step/step_recorder.hpp"
#include "collectors/tensors/tensor_view.hpp"
#include "record/clocks.hpp"

namespace gradvane::agent {

using collectors::EntryTag;
namespace {

thread_local bool begins_backward_passes = false;

}  // namespace

StepRecorder::Stamp StepRecorder::stamp_of(const at::Tensor& gradient) noexcept {
  Stamp stamp;
  if (!gradient.defined() || gradient.is_inference()) return stamp;
  stamp.data = gradient.unsafeGetTensorImpl();
  stamp.version = gradient.unsafeGetTensorImpl()->version_counter().current_version();
  return stamp;
}

bool StepRecorder::gradients_unchanged(int optimizer) const noexcept {
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  const Watched& watched = at(optimizer);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& gradient = watch_.gradient(optimizer, i);
    // An inference tensor counts no versions: it may have been written to.
    if (gradient.defined() && gradient.is_inference()) return false;
    if (stamp_of(gradient) != watched.stamps[i]) return false;
  }
  return true;
}

/// A few, spread over the optimizer's parameters: a backward pass that leaves them all alone is none of
/// its own. Every pass looks at those of all optimizers, mostly past the caches: where there are many of
/// them, it looks at fewer each.
void StepRecorder::choose_watched_entries(Watched& watched) {
  constexpr std::size_t kEntries = 8;
  constexpr std::size_t kOfAll = 1024;
  const std::size_t each = std::clamp(kOfAll / static_cast<std::size_t>(std::max(watch_.live(), 1)),
                                      std::size_t{1}, kEntries);
  const std::size_t count = std::min(each, watched.stamps.size());
  watched.watched_entries.clear();
  for (std::size_t k = 0; k < count; ++k)
    watched.watched_entries.push_back(k * watched.stamps.size() / count);
  watched.before_backward.assign(watched.watched_entries.size(), Stamp{});
}

/// Several threads may train at once, each its own optimizers: a backward pass of one says nothing of the
/// others'. Who trains what is known from the first step on.
bool StepRecorder::is_anothers(const Watched& watched) noexcept {
  return watched.trainer != std::thread::id() && watched.trainer != std::this_thread::get_id();
}

/// A thread of autograd's own may take the step, within the pass: it begins none itself.
void StepRecorder::note_trainer(Watched& watched) noexcept {
  if (begins_backward_passes) watched.trainer = std::this_thread::get_id();
}

int StepRecorder::before_backward(bool within_step) noexcept {
  int unseen = 0;
  if (!enabled_) return unseen;
  catch_up();
  begins_backward_passes = true;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o) || is_anothers(at(o))) continue;
    Watched& watched = at(o);
    const bool is_told = watched.has_read;
    if (watched.has_read && !within_step && watched.reader == std::this_thread::get_id())
      hand_over_superseded(o);
    bool all_gone = true;
    for (std::size_t k = 0; k < watched.watched_entries.size(); ++k) {
      const at::Tensor gradient = watch_.gradient_now(o, watched.watched_entries[k]);
      watched.before_backward[k] = stamp_of(gradient);
      all_gone = all_gone && !gradient.defined();
    }
    if (within_step) {
      if (all_gone) watched.losses.clear();
      continue;
    }
    const bool was_unused = watched.was_discarded || (all_gone && watched.backwards > 0);
    unseen += was_unused ? 1 : 0;
    if (all_gone) {
      if (!is_told) discard(o);
      watched.losses.clear();
      watched.backwards = 0;
    }
    watched.was_discarded = false;
  }
  return unseen;
}

void StepRecorder::after_backward(const at::Tensor& loss) noexcept {
  if (!enabled_) return;
  const collectors::OwnCalls own(ledger_);
  ++passes_;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o) || is_anothers(at(o))) continue;
    Watched& watched = at(o);
    bool touched = false;
    for (std::size_t k = 0; k < watched.watched_entries.size() && !touched; ++k) {
      const at::Tensor gradient = watch_.gradient_now(o, watched.watched_entries[k]);
      touched = gradient.defined() && stamp_of(gradient) != watched.before_backward[k];
    }
    if (!touched) continue;
    ++watched.backwards;
    watched.last_pass = passes_;
    if (loss.defined()) watched.losses.add(loss, Losses::From::backward, device_loss_reads_);
  }
}

/// A generator's backward pass writes to the gradients of its critic too. No step will be taken with those, but one was
/// taken with that pass.
bool StepRecorder::is_unused(int optimizer) const noexcept {
  const Watched& watched = at(optimizer);
  const bool is_for_step = watched.has_read && watched.facts.read_at != record::ReadAt::clip;
  return enabled_ && watched.backwards > 0 && !is_for_step && watched.last_pass > taken_pass_;
}

void StepRecorder::discard(int optimizer) noexcept {
  if (!is_unused(optimizer) || is_anothers(at(optimizer))) return;
  Watched& watched = at(optimizer);
  read_gradients(optimizer, record::ReadAt::backward);
  watched.facts.bad_micro_step = losses_of(watched).first_bad();
  // What the loop has handed over belongs to what it leaves behind, unless another optimizer is to take it.
  if (losses_.first_bad() > 0 || watch_.live() == 1) losses_.clear();
  if (watched.has_read) hand_over_superseded(optimizer);
  watched.losses.clear();
  watched.backwards = 0;
  watched.was_discarded = true;
}

/// The gradients were read, and then the loop went on without a step: what was found is told all the
/// same if it was bad.
void StepRecorder::hand_over_superseded(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  collectors::StepFacts& facts = watched.facts;
  facts.superseded = true;
  facts.skipped = record::SkipReason::loop;
  facts.step = watched.step + 1;
  facts.run_step = next_run_step(optimizer);
  facts.optimizer = optimizer;
  facts.micro_steps = std::max(watched.backwards, 1);
  facts.time = record::unix_time();
  facts.monotonic = record::monotonic_time();
  handoff_.publish(facts);
  forget_read(watched);
}

void StepRecorder::read_part(int optimizer, const at::Tensor& param) noexcept try {
  if (!enabled_ || at(optimizer).has_read) return;
  catch_up();
  Watched& watched = at(optimizer);
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  if (watched.entries.empty())
    for (std::size_t i = 0; i < params.size(); ++i)
      watched.entries.emplace(params[i].unsafeGetTensorImpl(), i);
  if (watched.parts.empty())
    watched.parts.assign(params.size() + 2, collectors::not_read(EntryTag::missing));
  const auto entry = watched.entries.find(param.unsafeGetTensorImpl());
  if (entry == watched.entries.end() || !param.grad().defined()) return;
  part_reader_.set(0, param.grad(), EntryTag::read);
  if (part_reader_.read()) watched.parts[entry->second] = part_reader_.stats().front();
} catch (...) {  // no memory: what was not read is missing
}

void StepRecorder::publish_parts(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  if (!enabled_ || watched.parts.size() != watch_.params(optimizer).size() + 2) return;
  for (std::size_t i = 0; i + 2 < watched.parts.size(); ++i)
    if (!watch_.params(optimizer)[i].requires_grad())
      watched.parts[i] = collectors::not_read(EntryTag::frozen);
  watched.has_read = true;
  watched.reader = std::this_thread::get_id();
  watched.facts.read_at = record::ReadAt::optimizer;
  watched.facts.grad_sequence =
      handoff_.publish(watch_.plan(optimizer)->id, watched.gradient_sites, watched.parts);
  watched.parts.clear();
}

void StepRecorder::hand_over_unfinished() noexcept {
  if (!enabled_) return;
  for (int o = 0; o < watch_.optimizers(); ++o)
    if (at(o).has_read) hand_over_superseded(o);
}

void StepRecorder::note_scale(int optimizer, const at::Tensor& scale, bool is_scaled) noexcept try {
  const collectors::OwnCalls own(ledger_);
  Watched& watched = at(optimizer);
  if (watched.has_read) return;
  watched.facts.has_scaler = true;
  watched.facts.gradients_scaled = is_scaled;
  if (watched.device_gradients.takes(scale)) {
    watched.device_scale = scale;
  } else if (const auto value = collectors::scalar_value(scale); value && *value > 0) {
    watched.scale = *value;
  }
} catch (...) {  // without the scale the gradients are reported as they are
}

void StepRecorder::note_clip(int optimizer, double max_norm) noexcept {
  Watched& watched = at(optimizer);
  if (!watched.has_read || ++watched.clips > 1 || watched.facts.gradients_scaled) {
    watched.facts.clip_max_norm = collectors::kNotMeasured;
    note_other_clip(optimizer);
    return;
  }
  watched.facts.clip_max_norm = max_norm;
  stamp_gradients(optimizer);
}

/// What has been written to them up to now is known.
void StepRecorder::stamp_gradients(int optimizer) noexcept {
  watch_.look_at_gradients(optimizer);
  std::vector<Stamp>& stamps = at(optimizer).stamps;
  for (std::size_t i = 0; i < std::min(watch_.params(optimizer).size(), stamps.size()); ++i)
    stamps[i] = stamp_of(watch_.gradient(optimizer, i));
}

void StepRecorder::look_again(int optimizer) noexcept {
  const collectors::OwnCalls own(ledger_);
  Watched& watched = at(optimizer);
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  if (!watched.has_read || watched.facts.has_scaler || watched.device_reads > 0 ||
      watched.stamps.size() != params.size())
    return;
  watch_.look_at_gradients(optimizer);
  if (!watched.reads_norm_again && gradients_unchanged(optimizer)) return;
  const bool was_bad = is_bad(watched);
  for (std::size_t i = 0; i < params.size(); ++i)
    if (watch_.gradient(optimizer, i).defined() && !watch_.gradient(optimizer, i).is_cpu()) return;
  // What the first read found is in the ring by now: its reader is free.
  if (!scan_gradients(optimizer)) return;
  watched.reads_norm_again = false;
  double norm = 0;
  for (const kernels::TensorStats& stats : watched.gradients.stats().first(params.size()))
    if (collectors::tag_of(stats) == EntryTag::read) norm = std::hypot(norm, stats.norm());
  const bool is_whole = watched.all_read && watch_.plan(optimizer)->shards.empty();
  if (is_whole) watched.facts.norm_after_clip = norm;
  if (was_bad || !is_bad(watched)) return;
  watched.facts.grad_sequence = handoff_.publish(watch_.plan(optimizer)->id, watched.gradient_sites,
                                                 watched.gradients.stats());
}

void StepRecorder::after_evaluation(int optimizer) noexcept {
  const collectors::OwnCalls own(ledger_);
  Watched& watched = at(optimizer);
  if (!enabled_ || watched.has_read) return;
  follow_changes(optimizer);
  start(optimizer);
  for (const at::Tensor& param : watch_.params(optimizer))
    if (param.grad().defined() && !param.grad().is_cpu()) return;
  if (scan_gradients(optimizer) && is_bad(watched))
    publish_gradients(optimizer, record::ReadAt::backward);
}

/// Whether the gradients that were read last held anything that is not finite.
bool StepRecorder::is_bad(const Watched& watched) noexcept {
  return std::ranges::any_of(watched.gradients.stats().first(watched.stamps.size()),
                             [](const auto& stats) { return stats.nonfinite() > 0; });
}

}  // namespace gradvane::agent
