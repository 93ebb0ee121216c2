#include "agent/include/gradvane/agent.hpp"

#include <torch/optim/optimizer.h>

#include <functional>
#include <stdexcept>
#include <utility>

#include "agent/ranks/meeting.hpp"
#include "agent/session.hpp"
#include "agent/snapshots/snapshots.hpp"
#include "agent/step/own_time.hpp"
#include "collectors/model/libtorch_source.hpp"

namespace gradvane {

using agent::Clock;
using agent::OwnTime;
using agent::UnbookedTime;

namespace {

// Not in Agent::Impl, whose lambdas the library would export.

std::function<bool()> asks_for_captures(agent::Session& session) {
  return [&session] { return session.recorder().is_capturing(); };
}

std::function<collectors::SyncLedger*()> finds_ledger(agent::Session& session) {
  return [&session] { return session.ledger(); };
}

}  // namespace

class Agent::Impl {
 public:
  explicit Impl(const agent::ResolvedOptions& resolved) : session_(resolved) {}

  [[nodiscard]] bool live() noexcept { return session_.live(); }
  [[nodiscard]] agent::StepRecorder& recorder() noexcept { return session_.recorder(); }
  [[nodiscard]] agent::Session& session() noexcept { return session_; }

  template <typename Update>
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer, const at::Tensor* loss,
                                 bool reads_after, Update update) {
    const int index = live() ? recorder().find(&optimizer) : -1;
    if (index < 0) {
      update();
      return std::nullopt;
    }
    OwnTime before(recorder());
    if (loss != nullptr) recorder().take_loss(*loss);
    if (!reads_after) recorder().read_gradients(index, record::ReadAt::optimizer);
    recorder().before_update(index);
    snapshots_.before_update();
    agent::Decision decision = reads_after ? agent::Decision{} : judge(index, true);
    if (decision.verdict != agent::Verdict::take) {
      recorder().after_update(index);
      (void)before.stop();
      return finish(index, decision, record::SkipReason::governor, true);
    }
    const int phase = recorder().enter_phase(static_cast<int>(Phase::optimizer));
    const Clock::duration update_began = UnbookedTime::at(before.stop());
    try {
      update();
    } catch (...) {
      (void)recorder().enter_phase(phase);
      recorder().abandon(index);
      throw;
    }
    OwnTime after(recorder());
    (void)recorder().enter_phase(phase);
    recorder().add_phase(Phase::optimizer, UnbookedTime::book_since(update_began, after.began()));
    if (reads_after) {
      recorder().read_gradients(index, record::ReadAt::optimizer);
      decision = judge(index, false);  // too late to leave it out
    }
    recorder().after_update(index);
    (void)after.stop();
    return finish(index, decision, record::SkipReason::none, true);
  }

  /// Where ranks agree, this waits for all of them.
  agent::Decision judge(int index, bool can_skip) noexcept {
    if (!meeting_ || !session_.governor().agrees()) return recorder().judge(index, can_skip);
    try {
      const auto record = recorder().tell(index, can_skip);
      const auto began = Clock::now();
      const auto records = meeting_->exchange(std::string(record.begin(), record.end()));
      recorder().add_rank_wait(Clock::now() - began);
      return recorder().judge_together(index, can_skip, records);
    } catch (const std::exception& error) {
      session_.governor().lose_agreement(error.what());
    } catch (...) {
      session_.governor().lose_agreement("an exception that is no std::exception");
    }
    meeting_.reset();
    return recorder().judge(index, can_skip);
  }

  void end(record::RunState state, std::string_view reason) noexcept {
    meeting_.reset();  // the other ranks need not wait for this one
    session_.end(state, reason, agent::Worker::Linger::no);
  }

  void agree_over(AllGather gather, GatherAmong among) {
    meeting_.emplace(std::move(gather), std::move(among));
  }

  /// Throws std::invalid_argument if ranks are to agree and cannot.
  void check_ranks() {
    if (session_.governor().agrees() && !meeting_)
      throw std::invalid_argument(
          "ranks: agree needs to know how this rank reaches the others: call agree_over() before "
          "attach(), or set ranks to off");
  }

  /// A step is over: it is handed on, then the state is kept or put back. `is_update_ours`: the next one comes through
  /// step() too.
  std::optional<StepResult> finish(int index, agent::Decision decision, record::SkipReason skipped,
                                   bool is_update_ours) noexcept {
    auto result = session_.finish(index, skipped);
    if (decision.verdict != agent::Verdict::stop)
      snapshots_.after_step(index, recorder().last_run_step(),
                            decision.verdict == agent::Verdict::rollback, is_update_ours);
    return result;
  }

  [[nodiscard]] agent::Snapshots& snapshots() noexcept { return snapshots_; }

 private:
  agent::Session session_;
  agent::Snapshots snapshots_{session_.governor(), asks_for_captures(session_),
                              finds_ledger(session_)};
  std::optional<agent::ranks::Meeting> meeting_{};
};

namespace {

void check_device(const agent::Governor& governor, const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& param : group.params()) {
      if (param.is_cpu() || param.is_cuda()) continue;
      const std::string where =
          " for parameters on a CPU or a CUDA device, and these are on " + param.device().str();
      if (governor.pace().is_on())
        throw std::invalid_argument("snapshots are" + where +
                                    "; set snapshot_every to 0, on_nonfinite to watch, skip or "
                                    "stop, and on_divergence to watch or stop");
      if (governor.acts_on_nonfinite())
        throw std::invalid_argument("on_nonfinite is" + where + "; set it to watch");
    }
}

}  // namespace

Agent::Agent(const Options& options)
    : impl_(std::make_unique<Impl>(agent::resolve(options, agent::process_environment()))) {}

Agent::~Agent() {
  if (!impl_->session().close(agent::Worker::Linger::yes)) (void)impl_.release();
}

void Agent::attach(torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  check_device(impl_->session().governor(), optimizer);
  impl_->check_ranks();
  (void)impl_->recorder().attach(collectors::libtorch_source(module, &optimizer));
  impl_->snapshots().state().add(module, &optimizer);
}
void Agent::attach(torch::nn::Module& module) {
  impl_->check_ranks();
  (void)impl_->recorder().attach(collectors::libtorch_source(module, nullptr));
  impl_->snapshots().state().add(module, nullptr);
}

void Agent::agree_over(AllGather gather, GatherAmong among) {
  if (!gather) throw std::invalid_argument("agree_over: the function is empty");
  impl_->agree_over(std::move(gather), std::move(among));
}

std::optional<StepResult> Agent::step(torch::optim::Optimizer& optimizer) {
  return impl_->step(optimizer, nullptr, false, [&] { optimizer.step(); });
}

std::optional<StepResult> Agent::step(torch::optim::Optimizer& optimizer, const at::Tensor& loss) {
  return impl_->step(optimizer, &loss, false, [&] { optimizer.step(); });
}

std::optional<StepResult> Agent::step(torch::optim::Optimizer& optimizer,
                                      const std::function<at::Tensor()>& closure) {
  return impl_->step(optimizer, nullptr, true, [&] {
    at::Tensor last;
    optimizer.step([&] { return last = closure(); });
    impl_->recorder().take_loss(last);
  });
}

void Agent::begin_step() noexcept {
  if (!impl_->live()) return;
  if (const int only = impl_->recorder().only(); only >= 0) impl_->recorder().abandon(only);
}

void Agent::after_backward() noexcept {
  const int only = impl_->live() ? impl_->recorder().only() : -1;
  if (only < 0) return;
  const OwnTime own(impl_->recorder());
  impl_->recorder().read_gradients(only, record::ReadAt::backward);
  impl_->recorder().before_update(only);
}

void Agent::after_backward(const at::Tensor& loss) noexcept {
  if (impl_->live()) impl_->recorder().take_loss(loss);
  after_backward();
}

std::optional<StepResult> Agent::end_step() noexcept {
  const int only = impl_->live() ? impl_->recorder().only() : -1;
  if (only < 0) return std::nullopt;
  agent::Decision decision;
  {
    const OwnTime own(impl_->recorder());
    decision = impl_->judge(only, false);  // the update was the loop's
    impl_->recorder().after_update(only);
  }
  return impl_->finish(only, decision, record::SkipReason::none, false);
}

void Agent::before_reduction() noexcept {
  if (!impl_->live()) return;
  const OwnTime own(impl_->recorder());
  impl_->recorder().own_gradients().look();
}

void Agent::micro_step() noexcept {
  if (impl_->live()) impl_->recorder().count_micro_step();
}

void Agent::micro_step(const at::Tensor& loss) noexcept {
  if (!impl_->live()) return;
  impl_->recorder().take_loss(loss);
  impl_->recorder().count_micro_step();
}

at::Tensor Agent::clip_grad_norm(double max_norm) {
  (void)impl_->live();
  const OwnTime own(impl_->recorder());
  return impl_->recorder().clip(impl_->recorder().only(), max_norm);
}

PhaseScope Agent::phase(Phase which) noexcept { return {this, which}; }

void Agent::log(std::string_view name, double value) noexcept {
  if (impl_->live()) impl_->recorder().log(name, value);
}

void Agent::log(std::string_view name, const at::Tensor& value) noexcept {
  if (impl_->live()) impl_->recorder().log(name, value);
}

void Agent::count_tokens(std::int64_t tokens) noexcept {
  if (impl_->live()) impl_->recorder().count_tokens(tokens);
}

void Agent::count_samples(std::int64_t samples) noexcept {
  if (impl_->live()) impl_->recorder().count_samples(samples);
}

void Agent::add_collectable(std::weak_ptr<prometheus::Collectable> collectable) {
  if (impl_->live()) impl_->session().worker().add_collectable(std::move(collectable));
}

std::string Agent::url() const { return impl_->live() ? impl_->session().url() : std::string(); }

Status Agent::status() const { return impl_->session().status(); }

GovernorStatus Agent::governor() const { return impl_->session().governor().status(); }
bool Agent::should_stop() const noexcept { return impl_->session().governor().should_stop(); }

bool Agent::snapshot() noexcept {
  return impl_->live() && impl_->snapshots().take_now(impl_->recorder().last_run_step());
}

Rollback Agent::rollback(std::string_view reason, const RollbackOptions& options) {
  if (!impl_->live()) throw std::runtime_error("rollback: the run has ended");
  return impl_->snapshots().go_back(std::string(reason), impl_->recorder().last_run_step(),
                                    options);
}

void Agent::on_rollback(std::function<void(const Rollback&)> callback) {
  impl_->snapshots().on_rollback(std::move(callback));
}

void Agent::snapshot_state(std::string_view name, SaveState save, LoadState load) {
  impl_->snapshots().state().add(std::string(name), std::move(save), std::move(load));
}

void Agent::writes_on(const c10::Stream& stream) { impl_->snapshots().writes_on(stream); }

bool Agent::flush(std::chrono::milliseconds timeout) noexcept {
  return impl_->live() && impl_->session().worker().flush(timeout);
}

void Agent::stop() noexcept { impl_->end(record::RunState::finished, ""); }
void Agent::fail(std::string_view reason) noexcept { impl_->end(record::RunState::failed, reason); }

PhaseScope::PhaseScope(Agent* agent, Phase which) noexcept
    : agent_(agent), phase_(which), started_ns_(0), before_(collectors::kNoPhase) {
  if (agent->impl_->live()) before_ = agent->impl_->session().enter_phase(which);
  started_ns_ = UnbookedTime::at(Clock::now()) / std::chrono::nanoseconds(1);
}

PhaseScope::PhaseScope(PhaseScope&& other) noexcept
    : agent_(std::exchange(other.agent_, nullptr)),
      phase_(other.phase_),
      started_ns_(other.started_ns_),
      before_(other.before_) {}

PhaseScope::~PhaseScope() {
  if (agent_ == nullptr || !agent_->impl_->live()) return;
  const std::chrono::nanoseconds started(started_ns_);
  agent_->impl_->recorder().add_phase(phase_, UnbookedTime::book_since(started, Clock::now()));
  agent_->impl_->session().leave_phase(phase_, before_);
}

Scope::Scope(const char* name) noexcept : before_(collectors::process_ledger().set_scope(name)) {}

OutsideSteps::OutsideSteps() noexcept { collectors::process_ledger().outside_steps(1); }

OutsideSteps::~OutsideSteps() { collectors::process_ledger().outside_steps(-1); }

Scope::~Scope() { (void)collectors::process_ledger().set_scope(before_); }

}  // namespace gradvane
