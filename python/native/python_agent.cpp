#include "python/native/python_agent.hpp"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "agent/public/option_table.hpp"

namespace gradvane::python {
namespace {

using agent::Clock;

constexpr std::size_t kMostQueued = 1000;  ///< that nobody has come for

template <typename T>
void queue(std::deque<T>& into, T item) {
  if (into.size() == kMostQueued) into.pop_front();
  into.push_back(std::move(item));
}

Options options_of(std::string default_run, const std::vector<std::string>& code,
                   std::vector<std::string> command_line) {
  Options options;
  options.run = std::move(default_run);
  for (const std::string& item : code) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const agent::OptionSpec* option = agent::find_option(key);
    if (option == nullptr) {
      std::string known;
      for (const agent::OptionSpec& one : agent::option_table())
        known += (known.empty() ? "" : ", ") + std::string(one.key);
      throw std::invalid_argument("there is no option '" + key + "'; there are: " + known);
    }
    if (!option->set(options, item.substr(equals + 1)))
      throw std::invalid_argument(key + " = '" + item.substr(equals + 1) +
                                  "' is not allowed; allowed: " + std::string(option->allowed));
  }
  options.command_line = std::move(command_line);
  return options;
}

}  // namespace

PythonAgent::PythonAgent(std::string default_run, const std::vector<std::string>& code,
                         std::vector<std::string> command_line)
    : process_(::getpid()), session_([&] {
        Options options = options_of(std::move(default_run), code, std::move(command_line));
        options.log = [this](std::string_view line) {
          {
            const std::lock_guard lock(queue_mutex_);
            queue(lines_, std::string(line));
          }
          came_.notify_all();
        };
        options.on_incident = [this](const Incident& incident) {
          {
            const std::lock_guard lock(queue_mutex_);
            queue(incidents_, incident);
          }
          came_.notify_all();
        };
        agent::ResolvedOptions resolved = agent::resolve(options, agent::process_environment());
        // Here the profiler is seen to start.
        if (resolved.options.sync_profiler == SyncProfiler::automatic)
          resolved.options.sync_profiler = SyncProfiler::yield;
        if (resolved.options.enabled) trace_mode_ = resolved.options.trace_nonfinite;
        return resolved;
      }()) {}

int PythonAgent::attach(std::unique_ptr<PythonSource> source) {
  const Turn turn(*this);
  owners_.forget();
  return session_.live() ? session_.recorder().attach(std::move(source)) : -1;
}

/// Garbage collection may ask for it in the middle of a call that this very thread is in.
bool PythonAgent::detach(int optimizer) {
  if (holder_.load() == std::this_thread::get_id()) return false;
  const Turn turn(*this);
  owners_.forget();
  session_.recorder().detach(optimizer);
  return true;
}

int PythonAgent::before_backward(bool within_step) {
  const Turn turn(*this);
  if (!session_.live()) return 0;
  const Clock::time_point begin = Clock::now();
  const int unseen = session_.recorder().before_backward(within_step);
  enter_phase(Phase::backward);
  backward_began_ = Clock::now();
  session_.recorder().add_agent_time(backward_began_ - begin);
  return unseen;
}

void PythonAgent::after_backward(const at::Tensor& loss) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  session_.recorder().add_phase(Phase::backward, begin - backward_began_);
  leave_phase();
  session_.recorder().after_backward(loss);
  session_.recorder().add_agent_time(Clock::now() - begin);
}

bool PythonAgent::read(int optimizer, record::ReadAt where, const at::Tensor& scale,
                       bool is_scaled) {
  const Turn turn(*this);
  if (!session_.live()) return false;
  const Clock::time_point begin = Clock::now();
  if (session_.recorder().has_read(optimizer)) {
    session_.recorder().look_again(optimizer);
    session_.recorder().add_agent_time(Clock::now() - begin);
    return false;
  }
  if (scale.defined()) session_.recorder().note_scale(optimizer, scale, is_scaled);
  session_.recorder().read_gradients(optimizer, where);
  session_.recorder().add_agent_time(Clock::now() - begin);
  return session_.recorder().has_read(optimizer);
}

std::vector<int> PythonAgent::unused(const std::vector<int>& optimizers) {
  const Turn turn(*this);
  std::vector<int> found;
  for (const int optimizer : optimizers)
    if (session_.live() && session_.recorder().is_unused(optimizer)) found.push_back(optimizer);
  return found;
}

void PythonAgent::discard(int optimizer, const at::Tensor& scale, bool is_scaled) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  if (scale.defined()) session_.recorder().note_scale(optimizer, scale, is_scaled);
  session_.recorder().discard(optimizer);
  session_.recorder().add_agent_time(Clock::now() - begin);
}

void PythonAgent::note_clip(const std::vector<int>& optimizers, std::optional<double> max_norm) {
  const Turn turn(*this);
  if (!session_.live()) return;
  for (const int optimizer : optimizers) {
    if (max_norm)
      session_.recorder().note_clip(optimizer, *max_norm);
    else
      session_.recorder().note_other_clip(optimizer);
  }
}

void PythonAgent::step_begins(int optimizer, bool has_closure) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  agent::StepRecorder& recorder = session_.recorder();
  if (!has_closure) recorder.read_gradients(optimizer, record::ReadAt::optimizer);
  recorder.before_update(optimizer);
  enter_phase(Phase::optimizer);
  step_began_ = Clock::now();
  recorder.add_agent_time(step_began_ - begin);
}

void PythonAgent::step_ends(int optimizer, bool has_closure) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  agent::StepRecorder& recorder = session_.recorder();
  recorder.add_phase(Phase::optimizer, begin - step_began_);
  leave_phase();
  if (has_closure) recorder.read_gradients(optimizer, record::ReadAt::optimizer);
  recorder.after_update(optimizer);
  recorder.add_agent_time(Clock::now() - begin);
  keep(session_.finish(optimizer));
}

void PythonAgent::evaluated(int optimizer) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  session_.recorder().after_evaluation(optimizer);
  session_.recorder().add_agent_time(Clock::now() - begin);
}

void PythonAgent::step_failed(int optimizer) {
  const Turn turn(*this);
  if (!session_.live()) return;
  leave_phase();
  session_.recorder().abandon(optimizer);
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
  const Turn turn(*this);
  if (session_.live()) leave_phase();
}

void PythonAgent::step_skipped(int optimizer) {
  const Turn turn(*this);
  if (session_.live()) keep(session_.finish(optimizer, record::SkipReason::amp_overflow));
}

void PythonAgent::loop_read(int optimizer) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  session_.recorder().read_gradients(optimizer, record::ReadAt::backward);
  session_.recorder().before_update(optimizer);
  session_.recorder().add_agent_time(Clock::now() - begin);
}

void PythonAgent::loop_step_ends(int optimizer) {
  const Turn turn(*this);
  if (!session_.live() || !session_.recorder().has_read(optimizer)) return;
  const Clock::time_point begin = Clock::now();
  session_.recorder().look_again(optimizer);
  session_.recorder().after_update(optimizer);
  session_.recorder().add_agent_time(Clock::now() - begin);
  keep(session_.finish(optimizer));
}

void PythonAgent::parts_begin(int optimizer) {
  const Turn turn(*this);
  if (session_.live()) session_.recorder().before_update(optimizer);
}

void PythonAgent::read_parts(int optimizer, const std::vector<at::Tensor>& params) {
  const Turn turn(*this);
  if (!session_.live()) return;
  const Clock::time_point begin = Clock::now();
  for (const at::Tensor& param : params) session_.recorder().read_part(optimizer, param);
  session_.recorder().add_agent_time(Clock::now() - begin);
}

void PythonAgent::parts_end(int optimizer, const at::Tensor& loss) {
  const Turn turn(*this);
  if (!session_.live()) return;
  agent::StepRecorder& recorder = session_.recorder();
  if (loss.defined()) recorder.take_loss(optimizer, loss, agent::Losses::From::backward);
  recorder.publish_parts(optimizer);
  if (!recorder.has_read(optimizer)) return;
  recorder.after_update(optimizer);
  keep(session_.finish(optimizer));
}

void PythonAgent::keep(std::optional<StepResult> result) {
  if (result) immediate_ = std::move(result);
}

ParameterOwners::Owners PythonAgent::owners(const std::vector<const void*>& params) {
  const Turn turn(*this);
  return session_.live() ? owners_.of(params, session_.recorder()) : ParameterOwners::Owners{};
}

at::Tensor PythonAgent::grad_norm(int optimizer) {
  const Turn turn(*this);
  return session_.recorder().norm(optimizer);
}

bool PythonAgent::is_sharded(int optimizer) {
  const Turn turn(*this);
  return session_.recorder().is_sharded(optimizer);
}

at::Tensor PythonAgent::clip_grad_norm(int optimizer, double max_norm, bool just_read) {
  const Turn turn(*this);
  (void)session_.live();
  const at::Tensor norm = session_.recorder().clip(optimizer, max_norm, just_read);
  return norm.to(session_.recorder().norm_type(optimizer));
}

void PythonAgent::take_loss(const at::Tensor& loss) {
  const Turn turn(*this);
  if (session_.live()) session_.recorder().take_loss(loss);
}

void PythonAgent::log(const std::string& name, double value) {
  const Turn turn(*this);
  if (session_.live()) session_.recorder().log(name, value);
}

void PythonAgent::log(const std::string& name, const at::Tensor& value) {
  const Turn turn(*this);
  if (session_.live()) session_.recorder().log(name, value);
}

void PythonAgent::count(std::int64_t tokens, std::int64_t samples) {
  const Turn turn(*this);
  if (!session_.live()) return;
  if (tokens > 0) session_.recorder().count_tokens(tokens);
  if (samples > 0) session_.recorder().count_samples(samples);
}

StepResult PythonAgent::record() {
  {
    const Turn turn(*this);
    if (immediate_) return *immediate_;
  }
  return session_.status().latest;
}

Status PythonAgent::status() { return session_.status(); }
std::string PythonAgent::url() { return session_.url(); }

bool PythonAgent::flush(double seconds) {
  const Turn turn(*this);
  return session_.live() && session_.worker().flush(std::chrono::milliseconds(
                                static_cast<std::int64_t>(1e3 * seconds)));
}

void PythonAgent::end(record::RunState state, std::string_view reason, bool lingers) {
  using Linger = agent::Worker::Linger;
  bool has_begun = false;
  {
    const Turn turn(*this);
    has_begun = session_.begin_end(state, reason, lingers ? Linger::yes : Linger::no);
  }
  if (has_begun) {
    session_.await_end();  // other threads may have their turn meanwhile: callbacks
    const Turn turn(*this);
    session_.leave();
  }
  {
    const std::lock_guard lock(queue_mutex_);
    has_ended_ = true;
  }
  came_.notify_all();
}

void PythonAgent::stop(bool lingers) { end(record::RunState::finished, "", lingers); }
void PythonAgent::fail(const std::string& reason, bool lingers) {
  end(record::RunState::failed, reason, lingers);
}

bool PythonAgent::close() noexcept {
  // In a forked child its locks may be held by threads that do not exist there.
  return ::getpid() == process_ && session_.close(agent::Worker::Linger::no);
}

PythonAgent::Event PythonAgent::next_event(double seconds) {
  std::unique_lock lock(queue_mutex_);
  came_.wait_for(lock, std::chrono::duration<double>(seconds),
                 [this] { return !incidents_.empty() || !lines_.empty() || has_ended_; });
  Event event;
  if (!incidents_.empty()) {
    event.incident = std::move(incidents_.front());
    incidents_.pop_front();
  }
  event.is_over = has_ended_ && incidents_.empty();
  return event;
}

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

std::vector<std::string> PythonAgent::take_lines() {
  const std::lock_guard lock(queue_mutex_);
  std::vector<std::string> lines(lines_.begin(), lines_.end());
  lines_.clear();
  return lines;
}

}  // namespace gradvane::python
