#include "agent/step/step_recorder.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "agent/step/gradient_clip.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "collectors/tensors/tensor_view.hpp"
#include "record/clocks.hpp"

namespace gradvane::agent {

using collectors::OwnCalls;

StepRecorder::StepRecorder(const Options& options, bool enabled, Governor& governor)
    : options_(options),
      governor_(governor),
      handoff_(options.ring_slots),
      losses_(handoff_),
      user_(handoff_),
      optimizers_(options_, enabled, handoff_, losses_, user_),
      run_(options_.start_step, optimizers_),
      weights_(options_, optimizers_, handoff_),
      gradients_(optimizers_, run_, losses_, weights_, handoff_, governor.needs_norm()),
      parts_(optimizers_, handoff_),
      backward_(optimizers_, run_, losses_, gradients_, handoff_),
      clipping_(optimizers_, gradients_),
      results_(options_, handoff_, losses_, user_),
      devices_(handoff_),
      replicas_(options_, optimizers_, governor),
      own_(options_, optimizers_) {
  handoff_.set_weight_every(options.weight_every);
}

int StepRecorder::attach(std::unique_ptr<collectors::ModelSource> source) {
  const OwnCalls own(syncs_.ledger());
  return optimizers_.attach(std::move(source));
}

void StepRecorder::detach(int optimizer) noexcept {
  const OwnCalls own(syncs_.ledger());
  if (optimizers_.is_enabled() && has_read(optimizer)) backward_.hand_over_superseded(optimizer);
  optimizers_.remove(optimizer);
  forget_step(at(optimizer));
  optimizers_.release(optimizer);
}

void StepRecorder::catch_up() noexcept {
  const OwnCalls own(syncs_.ledger());
  optimizers_.catch_up();
}

void StepRecorder::next_step_begins() noexcept {
  if (!handoff_.newest().is_behind_it()) [[likely]]
    return;
  const OwnCalls own(syncs_.ledger());
  if (user_.has_late()) user_.read_late(optimizers_.is_capturing());
  handoff_.newest().close();
}

void StepRecorder::take_loss(const collectors::Tensor& loss) noexcept {
  next_step_begins();
  const OwnCalls own(syncs_.ledger());
  losses_.add(loss);
}

void StepRecorder::log_loss(const collectors::Tensor& loss) noexcept {
  const OwnCalls own(syncs_.ledger());
  losses_.log(loss);
}

void StepRecorder::take_loss(int optimizer, const collectors::Tensor& loss,
                             Losses::From from) noexcept {
  const OwnCalls own(syncs_.ledger());
  losses_.add(at(optimizer).losses, loss, from);
}

int StepRecorder::before_backward(bool within_step) noexcept {
  next_step_begins();
  const OwnCalls own(syncs_.ledger());
  return backward_.before_backward(within_step);
}

void StepRecorder::after_backward(const collectors::Tensor& loss) noexcept {
  const OwnCalls own(syncs_.ledger());
  backward_.after_backward(loss);
}

void StepRecorder::discard(int optimizer) noexcept {
  const OwnCalls own(syncs_.ledger());
  backward_.discard(optimizer);
}

void StepRecorder::read_gradients(int optimizer, record::ReadAt where) noexcept {
  next_step_begins();
  const OwnCalls own(syncs_.ledger());
  gradients_.read(optimizer, where);
}

void StepRecorder::read_part(int optimizer, const collectors::Tensor& param) noexcept {
  next_step_begins();
  const OwnCalls own(syncs_.ledger());
  parts_.read(optimizer, param);
}

void StepRecorder::publish_parts(int optimizer) noexcept { parts_.publish(optimizer); }

void StepRecorder::note_scale(int optimizer, const collectors::Tensor& scale,
                              bool is_scaled) noexcept {
  const OwnCalls own(syncs_.ledger());
  gradients_.note_scale(optimizer, scale, is_scaled);
}

void StepRecorder::note_clip(int optimizer, double max_norm) noexcept {
  clipping_.note_clip(optimizer, max_norm);
}

void StepRecorder::look_again(int optimizer) noexcept {
  const OwnCalls own(syncs_.ledger());
  gradients_.look_again(optimizer);
}

void StepRecorder::after_evaluation(int optimizer) noexcept {
  const OwnCalls own(syncs_.ledger());
  gradients_.after_evaluation(optimizer);
}

void StepRecorder::before_update(int optimizer) noexcept {
  if (!optimizers_.is_enabled()) return;
  const OwnCalls own(syncs_.ledger());
  optimizers_.catch_up();
  collectors::StepFacts& facts = at(optimizer).facts;
  // Nothing comes between the optimizer's own hook and here.
  if (facts.read_at != record::ReadAt::optimizer) gradients_.look_again(optimizer);
  facts.lr_count =
      optimizers_.watch().learning_rates(optimizer, facts.lr.data(), record::kMaxLearningRates);
  weights_.before_update(optimizer);
}

void StepRecorder::after_update(int optimizer) noexcept {
  const OwnCalls own(syncs_.ledger());
  OptimizerState& state = at(optimizer);
  if (state.facts.left_to_device > 0) state.device_gradients.note_use();
  weights_.after_update(optimizer);
}

bool StepRecorder::leave_to_device(int optimizer) noexcept {
  const OwnCalls own(syncs_.ledger());
  OptimizerState& state = at(optimizer);
  const bool can_be = options_.mode == Mode::lagged && governor_.may_leave_to_device() &&
                      state.has_read && state.all_read && !state.on_host &&
                      state.device_reads > 0 && !state.facts.has_scaler;
  // In a graph the flag must be the graph's own, and outside it must not be.
  if (can_be && state.facts.captured == state.device_gradients.is_capturing())
    state.left_as = governor_.leave_to_device(optimizer, state.facts.captured);
  return state.left_as > 0;
}

std::vector<collectors::Tensor> StepRecorder::found_on_devices(int optimizer) {
  const OwnCalls own(syncs_.ledger());
  OptimizerState& state = at(optimizer);
  return state.left_as > 0 ? state.device_gradients.found_nonfinite()
                           : std::vector<collectors::Tensor>();
}

void StepRecorder::heeds_devices(int optimizer) noexcept {
  at(optimizer).facts.left_to_device = at(optimizer).left_as;
}

Decision StepRecorder::judge(int optimizer, bool can_skip) noexcept {
  if (!governor_.acts() || governor_.agrees() || !optimizers_.is_enabled()) return {};
  const OwnCalls own(syncs_.ledger());
  const StepFinding found = finding(optimizer, can_skip);
  // Each process sees its own shards alone: one would leave out a step that the others take.
  if (found.is_part || optimizers_.watch().plan(optimizer) == nullptr) return {};
  return governor_.judge(found);
}

std::array<char, ranks::kRecordBytes> StepRecorder::tell(int optimizer, bool can_skip) noexcept {
  const OwnCalls own(syncs_.ledger());
  ranks::RankRecord record = governor_.tell(finding(optimizer, can_skip));
  replicas_.add_fingerprint(optimizer, record);
  return ranks::encode(record);
}

Decision StepRecorder::judge_together(int optimizer, bool can_skip,
                                      std::span<const std::string> records) noexcept {
  const StepFinding found = finding(optimizer, can_skip);
  const auto name_of = [&](std::int32_t entry) {
    return optimizers_.watch().param_name(optimizer, entry);
  };
  const Decision decision = governor_.judge_together(found, records, name_of);
  if (decision.origin) {
    collectors::StepFacts& facts = at(optimizer).facts;
    facts.first_bad_rank = decision.origin->rank;
    facts.first_bad_loss = decision.origin->loss_is_bad;
  }
  if (governor_.agrees()) replicas_.compare(optimizer, found.run_step, records);
  return decision;
}

StepFinding StepRecorder::finding(int optimizer, bool can_skip) noexcept {
  OptimizerState& state = at(optimizer);
  const Losses& losses = losses_.of(state.losses);
  const auto plan = optimizers_.watch().plan(optimizer);
  StepFinding found;
  found.is_part = plan != nullptr && !plan->shards.empty();
  found.run_step = run_.of(optimizer);
  found.optimizer = optimizer;
  found.is_measured =
      state.has_read && state.device_reads == 0 && (state.on_host || state.all_read);
  found.loss_is_bad = losses.on_host() && !std::isfinite(losses.host_value());
  found.bad_micro_step = losses.first_bad();
  found.gradients_are_bad = state.has_read && state.is_bad();
  if (state.read_norm >= 0) found.norm = state.read_norm;
  // The hooks wait for what the device has to do, which is no work of theirs.
  found.is_left = state.left_as > 0;
  if (governor_.acts_on_nonfinite() && !found.is_left) clock_.add_agent_time(-devices_.wait(state));
  if (state.found_on_devices) {
    // A loss that came behind the read of a clip is found later, as a bad weight is.
    found.is_measured = !losses.on_device() || state.loss_in_gradients;
    found.loss_is_bad |= state.found_on_devices->loss_is_bad;
    found.gradients_are_bad |= state.found_on_devices->gradients_are_bad;
    found.norm = state.found_on_devices->norm;
  }
  found.own_bad = state.own_bad;
  found.has_scaler = state.facts.has_scaler;
  found.can_skip = can_skip;
  return found;
}

collectors::Tensor StepRecorder::clip(int optimizer, double max_norm, bool just_read) {
  next_step_begins();
  const OwnCalls own(syncs_.ledger());
  return clipping_.clip(optimizer, max_norm, just_read);
}

collectors::Tensor StepRecorder::as_torch_returns(int optimizer,
                                                  const collectors::Tensor& norm) const {
  return in_norm_type(norm, params(optimizer));
}

collectors::Tensor StepRecorder::norm(int optimizer) {
  const OwnCalls own(syncs_.ledger());
  return clipping_.norm(optimizer);
}

std::optional<StepResult> StepRecorder::finish(int optimizer, record::SkipReason skipped,
                                               bool is_taken_here) noexcept try {
  const OwnCalls own(syncs_.ledger());
  next_step_begins();
  optimizers_.catch_up();
  OptimizerState& state = at(optimizer);
  run_.end_step(optimizer);
  backward_.step_taken(state, is_taken_here);
  if (!optimizers_.is_enabled()) {
    forget_step(state);
    return std::nullopt;
  }
  const auto plan = optimizers_.watch().plan(optimizer);
  collectors::StepFacts& facts = state.facts;
  const bool has_loss = state.has_read && state.loss_in_gradients;
  if (!has_loss) losses_.read(state.losses, plan->id, facts);
  user_.read(facts);

  facts.step = state.step;
  facts.run_step = run_.last();
  facts.optimizer = optimizer;
  facts.skipped = skipped;
  facts.time = record::unix_time();
  facts.bad_micro_step = losses_.of(state.losses).first_bad();
  counts_.write_to(facts, state.passes.backwards);
  user_.write_to(facts);
  memory_.note(state.device_reads, facts);
  clock_.end_step(facts);

  const bool waits = options_.mode == Mode::immediate;
  const bool is_whole = waits && results_.wait(state);
  const std::size_t waited =
      state.devices_waited + (waits && !facts.captured ? ImmediateResults::devices_of(state) : 0);
  syncs_.excuse(collectors::take_set_up_waits());
  syncs_.end_step(facts, static_cast<std::int32_t>(waited));
  losses_.note_step(state.losses);
  if (facts.captured)
    handoff_.publish(facts);
  else
    handoff_.publish_open(facts);

  std::optional<StepResult> result;
  if (is_whole) result = results_.of(facts);
  forget_step(state);
  return result;
} catch (...) {  // no memory for the result; the step itself has been handed over
  forget_step(at(optimizer));
  return std::nullopt;
}

void StepRecorder::hand_over_unfinished() noexcept {
  next_step_begins();
  backward_.hand_over_unfinished();
}

int StepRecorder::enter_phase(int phase) noexcept {
  if (phase >= 0 && phase != static_cast<int>(Phase::optimizer)) next_step_begins();
  return syncs_.enter_phase(phase);
}

void StepRecorder::abandon(int optimizer) noexcept {
  syncs_.excuse(static_cast<std::int32_t>(at(optimizer).devices_waited));
  forget_step(at(optimizer));
}

void StepRecorder::forget_step(OptimizerState& state) noexcept {
  state.forget_read();
  state.losses.clear();
  state.passes.backwards = 0;
  losses_.clear();
  clock_.clear();
  counts_.clear();
  user_.clear();
}

bool StepRecorder::log(std::string_view name, double value) noexcept try {
  if (!optimizers_.is_enabled()) return true;
  return user_.set(name, value);
} catch (...) {  // no memory for a new name
  user_.refuse_name();
  return true;
}

bool StepRecorder::log(std::string_view name, const collectors::Tensor& given) noexcept try {
  if (!optimizers_.is_enabled()) return true;
  const OwnCalls own(syncs_.ledger());
  const collectors::TensorFacts facts = collectors::facts_of(given);
  // Whole numbers and truth values are of a type that no gradient has.
  const collectors::Tensor value =
      facts.dtype || facts.numel != 1 ? given : collectors::scalar_copy(given);
  if (!user_.takes(value)) {
    const auto number = collectors::scalar_value(value);
    return log(name, number.value_or(record::kNotLogged));
  }
  return user_.set(name, value);
} catch (...) {
  user_.refuse_name();
  return true;
}

}  // namespace gradvane::agent
