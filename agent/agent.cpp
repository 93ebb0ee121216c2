#include "agent/include/gradvane/agent.hpp"

#include <errno.h>
#include <torch/optim/optimizer.h>
#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <limits>
#include <utility>

#include "agent/gradient_clip.hpp"
#include "agent/options.hpp"
#include "agent/step_recorder.hpp"
#include "agent/worker.hpp"

namespace gradvane {
namespace {

using agent::Clock;

record::RunInfo describe_run(const agent::ResolvedOptions& resolved) {
  const Options& options = resolved.options;
  record::RunInfo run;
  run.run = options.run.empty() ? program_invocation_short_name : options.run;
  run.rank = options.rank;
  run.local_rank = options.local_rank;
  run.world_size = options.world_size;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) run.host = host.data();
  run.pid = ::getpid();
  run.version = GRADVANE_VERSION;
  run.torch_version = TORCH_VERSION;
  run.start_time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  run.settings = resolved.settings;
  return run;
}

}  // namespace

class Agent::Impl {
 public:
  explicit Impl(agent::ResolvedOptions resolved)
      : resolved_(std::move(resolved)),
        recorder_(resolved_.options, resolved_.options.enabled),
        exceptions_(std::uncaught_exceptions()) {
    if (resolved_.options.enabled)
      worker_ = std::make_unique<agent::Worker>(resolved_.options, describe_run(resolved_),
                                                recorder_.handoff());
  }

  ~Impl() {
    if (worker_ == nullptr) return;
    if (worker_->is_child())
      (void)worker_.release();  // its thread lives in the parent: nothing here can be ended
    else if (std::uncaught_exceptions() > exceptions_)
      end(record::RunState::failed, "an exception left the training loop");
  }

  /// False in a forked child and after the end: then only clipping works.
  [[nodiscard]] bool live() noexcept {
    if (worker_ == nullptr || has_ended_) return false;
    if (!worker_->is_child()) return true;
    recorder_.disable();
    return false;
  }

  void end(record::RunState state, std::string_view reason) noexcept {
    if (!live()) return;
    has_ended_ = true;
    recorder_.disable();
    worker_->end(state, reason);
  }

  template <typename Update>
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer, const at::Tensor* loss,
                                 bool reads_after, Update update) {
    const int index = live() ? recorder_.find(optimizer) : -1;
    if (index < 0) {
      update();
      return std::nullopt;
    }
    const Clock::time_point begin = Clock::now();
    if (loss != nullptr) recorder_.take_loss(*loss);
    if (!reads_after) recorder_.read_gradients(index, record::ReadAt::optimizer);
    recorder_.before_update(index);
    const Clock::time_point before = Clock::now();
    try {
      update();
    } catch (...) {
      recorder_.abandon(index);
      throw;
    }
    const Clock::time_point after = Clock::now();
    recorder_.add_phase(Phase::optimizer, after - before);
    if (reads_after) recorder_.read_gradients(index, record::ReadAt::optimizer);
    recorder_.after_update(index);
    recorder_.add_agent_time(before - begin + (Clock::now() - after));
    return finish(index);
  }

  /// What handing a step over costs is booked on the next one: this one's time has gone with it.
  std::optional<StepResult> finish(int optimizer) noexcept {
    const Clock::time_point begin = Clock::now();
    auto result = recorder_.finish(optimizer);
    recorder_.add_agent_time(Clock::now() - begin);
    return result;
  }

  agent::ResolvedOptions resolved_;
  agent::StepRecorder recorder_;
  int exceptions_;
  bool has_ended_ = false;
  std::unique_ptr<agent::Worker>
      worker_;  ///< null when switched off; after the recorder it reads from
};

Agent::Agent(Options options)
    : impl_(std::make_unique<Impl>(agent::resolve(options, agent::process_environment()))) {}

Agent::~Agent() = default;

void Agent::attach(torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  impl_->recorder_.attach(module, &optimizer);
}
void Agent::attach(torch::nn::Module& module) { impl_->recorder_.attach(module, nullptr); }

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
    impl_->recorder_.take_loss(last);
  });
}

void Agent::begin_step() noexcept {
  if (!impl_->live()) return;
  if (const int only = impl_->recorder_.only(); only >= 0) impl_->recorder_.abandon(only);
}

void Agent::after_backward() noexcept {
  const int only = impl_->live() ? impl_->recorder_.only() : -1;
  if (only < 0) return;
  const Clock::time_point begin = Clock::now();
  impl_->recorder_.read_gradients(only, record::ReadAt::backward);
  impl_->recorder_.before_update(only);
  impl_->recorder_.add_agent_time(Clock::now() - begin);
}

void Agent::after_backward(const at::Tensor& loss) noexcept {
  if (impl_->live()) impl_->recorder_.take_loss(loss);
  after_backward();
}

std::optional<StepResult> Agent::end_step() noexcept {
  const int only = impl_->live() ? impl_->recorder_.only() : -1;
  if (only < 0) return std::nullopt;
  const Clock::time_point begin = Clock::now();
  impl_->recorder_.after_update(only);
  impl_->recorder_.add_agent_time(Clock::now() - begin);
  return impl_->finish(only);
}

void Agent::micro_step() noexcept {
  if (impl_->live()) impl_->recorder_.count_micro_step();
}

void Agent::micro_step(const at::Tensor& loss) noexcept {
  if (!impl_->live()) return;
  impl_->recorder_.take_loss(loss);
  impl_->recorder_.count_micro_step();
}

at::Tensor Agent::clip_grad_norm(double max_norm) {
  (void)impl_->live();
  const Clock::time_point begin = Clock::now();
  at::Tensor norm = impl_->recorder_.clip(impl_->recorder_.only(), max_norm);
  impl_->recorder_.add_agent_time(Clock::now() - begin);
  return norm;
}

PhaseScope Agent::phase(Phase which) noexcept { return {this, which}; }

void Agent::log(std::string_view name, double value) noexcept {
  if (impl_->live()) impl_->recorder_.log(name, value);
}

void Agent::count_tokens(std::int64_t tokens) noexcept {
  if (impl_->live()) impl_->recorder_.count_tokens(tokens);
}

void Agent::count_samples(std::int64_t samples) noexcept {
  if (impl_->live()) impl_->recorder_.count_samples(samples);
}

void Agent::add_collectable(std::weak_ptr<prometheus::Collectable> collectable) {
  if (impl_->live()) impl_->worker_->add_collectable(std::move(collectable));
}

std::string Agent::url() const { return impl_->live() ? impl_->worker_->url() : std::string(); }

Status Agent::status() const {
  if (impl_->worker_ == nullptr || impl_->worker_->is_child()) {
    Status off;
    off.state = "off";
    off.reason = impl_->worker_ == nullptr ? "switched off" : "child of a fork";
    return off;
  }
  return impl_->worker_->status();
}

bool Agent::flush(std::chrono::milliseconds timeout) noexcept {
  return impl_->live() && impl_->worker_->flush(timeout);
}

void Agent::stop() noexcept { impl_->end(record::RunState::finished, ""); }
void Agent::fail(std::string_view reason) noexcept { impl_->end(record::RunState::failed, reason); }

PhaseScope::PhaseScope(Agent* agent, Phase which) noexcept
    : agent_(agent),
      phase_(which),
      started_ns_(Clock::now().time_since_epoch() / std::chrono::nanoseconds(1)) {}

PhaseScope::PhaseScope(PhaseScope&& other) noexcept
    : agent_(std::exchange(other.agent_, nullptr)),
      phase_(other.phase_),
      started_ns_(other.started_ns_) {}

PhaseScope::~PhaseScope() {
  if (agent_ == nullptr || !agent_->impl_->live()) return;
  const Clock::time_point started{std::chrono::nanoseconds(started_ns_)};
  agent_->impl_->recorder_.add_phase(phase_, Clock::now() - started);
}

}  // namespace gradvane
