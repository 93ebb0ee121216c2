#include "agent/step/backward_watch.hpp"

#include <algorithm>
#include <thread>

#include "record/clocks.hpp"

namespace gradvane::agent {
namespace {

thread_local bool begins_backward_passes = false;

/// Stands for this thread for as long as it lives: another one may have its id later. Null if there was no memory.
const std::shared_ptr<const char>& this_thread() noexcept {
  thread_local auto self = []() noexcept -> std::shared_ptr<const char> {
    try {
      return std::make_shared<const char>();
    } catch (...) {
      return nullptr;
    }
  }();
  return self;
}

/// A thread of autograd's own may take the step, within the pass: it begins none itself.
void note_trainer(SeenPasses& passes) noexcept {
  if (begins_backward_passes) passes.trainer = this_thread();
}

}  // namespace

void BackwardWatch::set_several_train(bool several) noexcept {
  several_train_.store(several);
  only_trainer_.store(several ? nullptr : this_thread().get());
}

/// The thread that trains it. Null if none that lives is known to. A thread that is just ending has its token for a moment
/// more, when others already know that it has ended.
std::shared_ptr<const char> BackwardWatch::trainer_of(const SeenPasses& passes) const noexcept {
  auto trainer = passes.trainer.lock();
  const char* here = this_thread().get();
  const bool has_ended = trainer.get() != here && here != nullptr && only_trainer_.load() == here;
  return has_ended ? nullptr : trainer;
}

bool BackwardWatch::is_known(const SeenPasses& passes) const noexcept {
  return trainer_of(passes) != nullptr;
}

bool BackwardWatch::is_anothers(const SeenPasses& passes) const noexcept {
  const auto trainer = trainer_of(passes);
  return trainer != nullptr && trainer != this_thread();
}

/// Its number. 0: there was no memory, and the pass shows nothing.
std::uint64_t BackwardWatch::begin_pass() noexcept try {
  (void)end_pass();  // one whose end was not seen
  in_progress_.push_back({this_thread(), ++begun_});
  return begun_;
} catch (...) {
  return 0;
}

/// The number that begin_pass() gave it; 0: it began before the agent did.
std::uint64_t BackwardWatch::end_pass() noexcept {
  std::uint64_t number = 0;
  std::erase_if(in_progress_, [&](const Pass& pass) {
    const auto thread = pass.thread.lock();
    if (thread == this_thread()) number = pass.number;
    return thread == nullptr || thread == this_thread();
  });
  return number;
}

bool BackwardWatch::another_is_in_pass() const noexcept {
  return std::ranges::any_of(in_progress_, [](const Pass& pass) {
    const auto thread = pass.thread.lock();
    return thread != nullptr && thread != this_thread();
  });
}

BackwardWatch::Trainers BackwardWatch::trainers() const noexcept {
  Trainers found{.others = several_train_.load()};
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o)) continue;
    const auto trainer = trainer_of(optimizers_.at(o).passes);
    if (trainer == nullptr) continue;
    found.mine += trainer == this_thread() ? 1 : 0;
    found.others = found.others || trainer != this_thread();
  }
  return found;
}

bool BackwardWatch::may_look_at(int optimizer) const noexcept {
  const auto trainer = trainer_of(optimizers_.at(optimizer).passes);
  return !several_train_.load() || (trainer != nullptr && trainer == this_thread());
}

GradientStamp BackwardWatch::stamp(int optimizer, std::size_t entry) const noexcept {
  if (!optimizers_.at(optimizer).passes.by_identity)
    return GradientStamp::of(watch_.gradient_now(optimizer, entry));
  const auto& params = watch_.params(optimizer);
  if (entry >= params.size()) return {};  // it is of lists that are gone
  return GradientStamp::of_identity(collectors::gradient_identity_of(params[entry]));
}

bool BackwardWatch::was_touched(int optimizer, bool trains_no_other) const noexcept {
  const SeenPasses& passes = optimizers_.at(optimizer).passes;
  for (std::size_t k = 0; k < passes.entries.size(); ++k) {
    const GradientStamp now = stamp(optimizer, passes.entries[k]);
    const GradientStamp& before = passes.before_backward[k];
    if (!now.exists) continue;
    if (!passes.by_identity && now == before) continue;
    if (passes.by_identity && now.data == before.data && !trains_no_other) continue;
    return true;
  }
  return false;
}

int BackwardWatch::before_backward(bool within_step) noexcept {
  int unseen = 0;
  if (!optimizers_.is_enabled()) return unseen;
  optimizers_.catch_up();
  begins_backward_passes = true;
  const std::uint64_t number = begin_pass();
  const bool another_trains = trainers().others;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o) || is_anothers(at(o).passes)) continue;
    OptimizerState& state = at(o);
    SeenPasses& passes = state.passes;
    passes.stamped_in = is_known(passes) || !another_is_in_pass() ? number : 0;
    if (passes.stamped_in == 0) continue;
    // While Python's `p.grad = None` frees a gradient, other threads have the GIL: no reference is taken to one that
    // another thread may free. Asked here, where no thread can begin to before the stamps are made.
    const bool others_train = another_trains || several_train_.load();
    passes.by_identity = !is_known(passes) || others_train;
    const bool is_reported = state.has_read;
    if (state.has_read && !within_step && state.reader == std::this_thread::get_id())
      hand_over_superseded(o);
    bool all_gone = true;
    for (std::size_t k = 0; k < passes.entries.size(); ++k) {
      passes.before_backward[k] = stamp(o, passes.entries[k]);
      all_gone = all_gone && !passes.before_backward[k].exists;
    }
    if (within_step) {
      if (all_gone) state.losses.clear();
      continue;
    }
    const bool was_unused = passes.was_discarded || (all_gone && passes.backwards > 0);
    unseen += was_unused ? 1 : 0;
    if (all_gone) {
      if (!is_reported && !others_train) discard(o);
      state.losses.clear();
      passes.backwards = 0;
    }
    passes.was_discarded = false;
  }
  return unseen;
}

void BackwardWatch::after_backward(const collectors::Tensor& loss) noexcept {
  const std::uint64_t number = end_pass();
  if (!optimizers_.is_enabled()) return;
  ++passes_;
  const Trainers threads = trainers();
  for (int o = 0; o < watch_.optimizers(); ++o) {
    OptimizerState& state = at(o);
    SeenPasses& passes = state.passes;
    if (watch_.is_removed(o) || number == 0 || passes.stamped_in != number) continue;
    if (is_anothers(passes)) continue;
    const bool is_mine = is_known(passes);
    // A pass that began meanwhile may be its trainer's.
    if (!is_mine && begun_ != number) continue;
    passes.by_identity = passes.by_identity || threads.others || several_train_.load();
    if (!was_touched(o, is_mine && threads.mine == 1)) continue;
    note_trainer(passes);
    ++passes.backwards;
    passes.last_pass = passes_;
    if (loss.defined()) losses_.add(state.losses, loss, Losses::From::backward);
  }
}

void BackwardWatch::step_taken(OptimizerState& state, bool here) noexcept {
  taken_pass_ = std::max(taken_pass_, state.passes.last_pass);
  if (here) note_trainer(state.passes);
}

/// A generator's backward pass writes to the gradients of its critic too. No step will be taken
/// with those, but one was taken with that pass.
bool BackwardWatch::is_unused(int optimizer) const noexcept {
  const OptimizerState& state = optimizers_.at(optimizer);
  const bool is_for_step = state.has_read && state.facts.read_at != record::ReadAt::clip;
  return optimizers_.is_enabled() && state.passes.backwards > 0 && !is_for_step &&
         state.passes.last_pass > taken_pass_;
}

void BackwardWatch::discard(int optimizer) noexcept {
  if (!is_unused(optimizer) || is_anothers(at(optimizer).passes)) return;
  OptimizerState& state = at(optimizer);
  gradients_.read(optimizer, record::ReadAt::backward);
  state.facts.bad_micro_step = losses_.of(state.losses).first_bad();
  // What the loop has passed belongs to what it leaves behind, unless another optimizer is to take
  // it.
  if (losses_.of_loop().first_bad() > 0 || watch_.live() == 1) losses_.clear();
  if (state.has_read) hand_over_superseded(optimizer);
  state.losses.clear();
  state.passes.backwards = 0;
  state.passes.was_discarded = true;
}

void BackwardWatch::hand_over_superseded(int optimizer) noexcept {
  OptimizerState& state = at(optimizer);
  collectors::StepFacts& facts = state.facts;
  facts.superseded = true;
  facts.skipped = record::SkipReason::loop;
  facts.step = state.step + 1;
  facts.run_step = run_.next(optimizer);
  facts.optimizer = optimizer;
  facts.micro_steps = std::max(state.passes.backwards, 1);
  facts.time = record::unix_time();
  facts.monotonic = record::monotonic_time();
  handoff_.publish(facts);
  state.forget_read();
}

void BackwardWatch::hand_over_unfinished() noexcept {
  if (!optimizers_.is_enabled()) return;
  for (int o = 0; o < watch_.optimizers(); ++o)
    if (at(o).has_read) hand_over_superseded(o);
}

}  // namespace gradvane::agent
