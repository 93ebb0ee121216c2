#include "python/native/python_agent.hpp"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "python/native/options_of_python.hpp"
#include "python/native/thread_times.hpp"

namespace gradvane::python {
namespace {

using agent::Clock;
using agent::UnbookedTime;

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

PythonAgent::PythonAgent(std::string default_run, const std::vector<std::string>& code,
                         std::vector<std::string> command_line)
    : number_(next_number()), process_(::getpid()), session_([&] {
        Options options = options_of(code, std::move(command_line));
        options.log = [this](std::string_view line) { events_.add_line(line); };
        options.on_incident = [this](const Incident& incident) { events_.add_incident(incident); };
        agent::ResolvedOptions resolved = agent::resolve(options, agent::process_environment());
        resolved.default_run = std::move(default_run);
        // Here the profiler is seen to start.
        if (resolved.options.sync_profiler == SyncProfiler::automatic)
          resolved.options.sync_profiler = SyncProfiler::yield;
        if (resolved.options.enabled) trace_mode_ = resolved.options.trace_nonfinite;
        checks_before_reduction_ = resolved.options.check_before_reduction;
        return resolved;
      }()) {}

bool PythonAgent::begin_turn() {
  // In a forked child this lock, or one behind it, may be a thread's that is not here to give it back.
  if (::getpid() != process_ || holder_.load() == std::this_thread::get_id()) return false;
  if (!mutex_.try_lock()) {
    const collectors::OthersRun others;  // whoever has the turn may want the GIL
    mutex_.lock();
  }
  holder_.store(std::this_thread::get_id());
  return true;
}

void PythonAgent::end_turn() noexcept {
  holder_.store({});
  mutex_.unlock();
}

int PythonAgent::attach(std::unique_ptr<PythonSource> source) {
  const Call call(*this);
  owners_.forget();
  return call ? call->attach(std::move(source)) : -1;
}

/// Garbage collection may ask for it in the middle of a call that this very thread is in.
bool PythonAgent::detach(int optimizer) {
  const Turn turn(*this);
  if (!turn) return false;
  owners_.forget();
  if (optimizer >= 0) session_.recorder().detach(optimizer);
  return true;
}

int PythonAgent::before_backward(bool within_step) {
  TimedCall call(*this);
  if (!call) return 0;
  const int unseen = call->before_backward(within_step);
  InThread& here = in_thread(number_);
  if (here.forward_began && !within_step)
    call->add_phase(Phase::forward, UnbookedTime::book_since(*here.forward_began, call.began()));
  here.forward_began.reset();
  enter_phase(Phase::backward);
  here.backward_began = UnbookedTime::at(call.stop());
  return unseen;
}

void PythonAgent::after_backward(const collectors::Tensor& loss) {
  TimedCall call(*this);
  if (!call) return;
  InThread& here = in_thread(number_);
  call->add_phase(Phase::backward, UnbookedTime::book_since(here.backward_began, call.began()));
  leave_phase();
  call->after_backward(loss);
  forward_may_begin(here, call.stop());
}

bool PythonAgent::read(int optimizer, record::ReadAt where, const collectors::Tensor& scale,
                       bool is_scaled) {
  const TimedCall call(*this);
  if (!call) return false;
  if (call->has_read(optimizer)) {
    call->look_again(optimizer);
    return false;
  }
  if (scale.defined()) call->note_scale(optimizer, scale, is_scaled);
  call->read_gradients(optimizer, where);
  return call->has_read(optimizer);
}

std::vector<int> PythonAgent::unused(const std::vector<int>& optimizers) {
  const Call call(*this);
  std::vector<int> found;
  for (const int optimizer : optimizers)
    if (call && call->is_unused(optimizer)) found.push_back(optimizer);
  return found;
}

void PythonAgent::discard(int optimizer, const collectors::Tensor& scale, bool is_scaled) {
  const TimedCall call(*this);
  if (!call) return;
  if (scale.defined()) call->note_scale(optimizer, scale, is_scaled);
  call->discard(optimizer);
}

void PythonAgent::note_clip(const std::vector<int>& optimizers, std::optional<double> max_norm) {
  const Call call(*this);
  if (!call) return;
  for (const int optimizer : optimizers) {
    if (max_norm)
      call->note_clip(optimizer, *max_norm);
    else
      call->note_other_clip(optimizer);
  }
}

agent::Verdict PythonAgent::step_begins(int optimizer, bool has_closure, bool heeds_device) {
  TimedCall call(*this);
  if (!call) return agent::Verdict::take;
  if (!has_closure) call->read_gradients(optimizer, record::ReadAt::optimizer);
  call->before_update(optimizer);
  if (heeds_device && !has_closure) (void)call->leave_to_device(optimizer);
  const agent::Decision decision = has_closure ? agent::Decision{} : call->judge(optimizer);
  enter_phase(Phase::optimizer);
  InThread& here = in_thread(number_);
  here.forward_began.reset();
  here.step_began = UnbookedTime::at(call.stop());
  return decision.verdict;
}

agent::Verdict PythonAgent::step_ends(int optimizer, bool has_closure, bool is_left_out) {
  using enum record::SkipReason;
  TimedCall call(*this);
  if (!call) return agent::Verdict::take;
  InThread& here = in_thread(number_);
  call->add_phase(Phase::optimizer, UnbookedTime::book_since(here.step_began, call.began()));
  leave_phase();
  if (has_closure) call->read_gradients(optimizer, record::ReadAt::optimizer);
  const agent::Decision decision = has_closure ? call->judge(optimizer, false) : agent::Decision{};
  call->after_update(optimizer);
  (void)call.stop();
  keep(session_.finish(optimizer, is_left_out ? governor : none));
  forward_may_begin(here, Clock::now());
  return decision.verdict;
}

std::optional<PythonAgent::PhaseSpan> PythonAgent::phase_begins(Phase phase) {
  TimedCall call(*this);
  if (!call) return std::nullopt;
  InThread& here = in_thread(number_);
  if (phase == Phase::data) here.forward_began.reset();
  if (phase == Phase::forward) {
    here.marks_forward = true;
    here.forward_began.reset();
  }
  const int before = session_.enter_phase(phase);
  return PhaseSpan{phase, before, UnbookedTime::at(call.stop()), std::this_thread::get_id()};
}

void PythonAgent::phase_ends(const PhaseSpan& span) {
  TimedCall call(*this);
  if (!call) return;
  if (span.thread == std::this_thread::get_id())
    call->add_phase(span.phase, UnbookedTime::book_since(span.began, call.began()));
  session_.leave_phase(span.phase, span.before);
  if (span.phase != Phase::data) return;
  InThread& here = in_thread(number_);
  here.has_data = true;
  forward_may_begin(here, call.stop());
}

void PythonAgent::outside_steps(int delta) {
  if (const Call call(*this); call) session_.outside_steps(delta);
}

void PythonAgent::step_failed(int optimizer) {
  const Call call(*this);
  if (!call) return;
  leave_phase();
  call->abandon(optimizer);
}

void PythonAgent::enter_phase(Phase phase) {
  phases_.push_back(session_.recorder().enter_phase(static_cast<int>(phase)));
}

void PythonAgent::leave_phase() {
  if (phases_.empty()) return;  // it began before the agent did
  (void)session_.recorder().enter_phase(phases_.back());
  phases_.pop_back();
}

void PythonAgent::backward_failed() {
  const Call call(*this);
  if (!call) return;
  leave_phase();
  call->backward_failed();
}

agent::Verdict PythonAgent::step_skipped(int optimizer) {
  const Call call(*this);
  if (!call) return agent::Verdict::take;
  const agent::Decision decision = call->judge(optimizer);
  keep(session_.finish(optimizer, record::SkipReason::amp_overflow));
  return decision.verdict;
}

void PythonAgent::loop_read(int optimizer) {
  const TimedCall call(*this);
  if (!call || !call->may_look_at(optimizer)) return;
  call->read_gradients(optimizer, record::ReadAt::backward);
  call->before_update(optimizer);
}

void PythonAgent::loop_step_ends(int optimizer) {
  TimedCall call(*this);
  if (!call || !call->has_read(optimizer) || !call->may_look_at(optimizer)) return;
  call->look_again(optimizer);
  call->after_update(optimizer);
  (void)call.stop();
  keep(session_.finish(optimizer, record::SkipReason::none, false));
}

void PythonAgent::parts_begin(int optimizer) {
  if (const Call call(*this); call) call->before_update(optimizer);
}

void PythonAgent::read_parts(int optimizer, const std::vector<collectors::Tensor>& params) {
  const TimedCall call(*this);
  if (!call) return;
  for (const collectors::Tensor& param : params) call->read_part(optimizer, param);
}

void PythonAgent::parts_end(int optimizer, const collectors::Tensor& loss) {
  const Call call(*this);
  if (!call) return;
  if (loss.defined()) call->take_loss(optimizer, loss, agent::Losses::From::backward);
  call->publish_parts(optimizer);
  if (!call->has_read(optimizer)) return;
  call->after_update(optimizer);
  keep(session_.finish(optimizer));
}

void PythonAgent::keep(std::optional<StepResult> result) {
  if (result) immediate_ = std::move(result);
}

ParameterOwners::Owners PythonAgent::owners(const std::vector<const void*>& params) {
  const Call call(*this);
  return call ? owners_.of(params, session_.recorder()) : ParameterOwners::Owners{};
}

std::vector<int> PythonAgent::owners_of_gradients(const std::vector<const void*>& gradients) {
  const Call call(*this);
  return call ? ParameterOwners::of_gradients(gradients, session_.recorder()) : std::vector<int>{};
}

collectors::Tensor PythonAgent::grad_norm(int optimizer) {
  const Turn turn(*this);
  return turn && optimizer >= 0 ? session_.recorder().norm(optimizer) : collectors::Tensor();
}

bool PythonAgent::is_sharded(int optimizer) {
  const Turn turn(*this);
  return turn && optimizer >= 0 && session_.recorder().is_sharded(optimizer);
}

collectors::Tensor PythonAgent::clip_grad_norm(int optimizer, double max_norm, bool just_read) {
  const Turn turn(*this);
  if (!turn) throw std::logic_error("clip_grad_norm_ was called from within gradvane");
  (void)session_.live();  // clips in any case
  const agent::OwnTime own(session_.recorder());
  const collectors::Tensor norm = session_.recorder().clip(optimizer, max_norm, just_read);
  return session_.recorder().as_torch_returns(optimizer, norm);
}

void PythonAgent::take_loss(const collectors::Tensor& loss) {
  if (const Call call(*this); call) call->log_loss(loss);
}

bool PythonAgent::log(const std::string& name, double value) {
  const Call call(*this);
  return !call || call->log(name, value);
}

bool PythonAgent::log(const std::string& name, const collectors::Tensor& value) {
  const Call call(*this);
  return !call || call->log(name, value);
}

void PythonAgent::count(std::int64_t tokens, std::int64_t samples) {
  const Call call(*this);
  if (!call) return;
  if (tokens > 0) call->count_tokens(tokens);
  if (samples > 0) call->count_samples(samples);
}

StepResult PythonAgent::record() {
  {
    const Turn turn(*this);
    if (turn && immediate_) return *immediate_;
  }
  return session_.status().latest;
}

Status PythonAgent::status() { return session_.status(); }
std::string PythonAgent::url() { return session_.url(); }
std::string PythonAgent::run() { return session_.run(); }

bool PythonAgent::flush(double seconds) {
  const Call call(*this);
  return call && session_.worker().flush(
                     std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds)));
}

void PythonAgent::end(record::RunState state, std::string_view reason, bool lingers) {
  using Linger = agent::Worker::Linger;
  bool has_begun = false;
  {
    const Turn turn(*this);
    has_begun = turn && session_.begin_end(state, reason, lingers ? Linger::yes : Linger::no);
  }
  if (has_begun) {
    session_.await_end();  // other threads may have their turn meanwhile: callbacks
    const Turn turn(*this);
    session_.leave();  // in any case
  }
  events_.end();
}

void PythonAgent::stop(bool lingers) { end(record::RunState::finished, "", lingers); }
void PythonAgent::fail(const std::string& reason, bool lingers) {
  end(record::RunState::failed, reason, lingers);
}

bool PythonAgent::close() noexcept {
  // In a forked child its locks may be held by threads that do not exist there.
  return ::getpid() == process_ && session_.close(agent::Worker::Linger::no);
}

std::pair<std::optional<Incident>, bool> PythonAgent::next_event(double seconds) {
  return events_.next_incident(seconds);
}

std::vector<std::string> PythonAgent::take_lines() { return events_.take_lines(); }

bool PythonAgent::exchange_opens() { return session_.exchange().open(); }
void PythonAgent::exchange_closes() { session_.exchange().close(); }
void PythonAgent::exchange_failed() { session_.exchange().fail(); }

std::vector<std::tuple<std::int64_t, int, double>> PythonAgent::take_contributions(double seconds) {
  std::vector<std::tuple<std::int64_t, int, double>> taken;
  for (const auto& one : session_.exchange().take(seconds))
    taken.emplace_back(one.step, one.optimizer, one.norm);
  return taken;
}

void PythonAgent::give_norm(std::int64_t step, int optimizer, double norm) {
  session_.exchange().give(step, optimizer, norm);
}

void PythonAgent::own_calls(int delta) noexcept {
  if (collectors::SyncLedger* ledger = session_.ledger()) ledger->own(delta);
}

void PythonAgent::note_checks(std::int32_t host_syncs, double seconds) {
  const Call call(*this);
  if (!call) return;
  call->excuse_syncs(host_syncs);
  const std::chrono::duration<double> time(seconds);
  call->add_agent_time(std::chrono::duration_cast<Clock::duration>(time));
}

std::int64_t PythonAgent::trace_found(int optimizer, record::TracedModule found) {
  const Call call(*this);
  if (!call) return 0;
  found.run_step = call->run_step(optimizer);
  const std::int64_t run_step = found.run_step;
  session_.worker().trace_found(std::move(found));
  return run_step;
}

}  // namespace gradvane::python
