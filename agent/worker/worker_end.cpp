// Worker's part that ends the run.
#include <algorithm>
#include <cmath>

#include "agent/worker/process_signals.hpp"
#include "agent/worker/worker.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;
using record::RunState;
using Clock = std::chrono::steady_clock;

constexpr auto kExportBudget = 1s;
constexpr auto kAnswerBudget =
    5s;  // for answers on their way: viewers learn from them that it is over
constexpr auto kCutBudget = 500ms;     // for what is left to do after Ctrl-C
constexpr auto kUnnoticedWait = 50ms;  // too short to be interrupted
constexpr auto kLook = 10ms;
constexpr std::chrono::duration<double> kLongestPatience = std::chrono::hours(24 * 365);

}  // namespace

void Worker::wind_up(const Ending& ending) noexcept {
  try {
    set_state(ending.state, ending.reason.empty() ? device_failure_ : ending.reason);
    // With all the steps they had, for whoever keeps them.
    judge_.tell_open(
        [this](const record::Incident& incident) { (void)exporters_.export_incident(incident); });
  } catch (...) {  // no memory for it: the end itself matters more
  }
  report_syncs();
  record_at_the_end(ending);
  // Until it dies the program trains on.
  if (ending.is_by_signal) linger(ending);
  (void)exporters_.finish(std::chrono::milliseconds(kExportBudget));
  if (!ending.is_by_signal) linger(ending);
  stop_endpoint(CtrlC::was_pressed() ? kCutBudget : std::chrono::milliseconds(kAnswerBudget));
  if (run_directory_) run_directory_->release();
  if (recordings_directory_) recordings_directory_->release();
  give_signals_back();  // before detach() returns
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

/// How long the end waits for one more scrape.
std::chrono::duration<double> Worker::patience(RunState state) const {
  const auto scrapes = endpoint_->scrapes();
  if (scrapes.count == 0 && !options_.expect_scraper) return 0s;  // nobody is listening
  const bool is_news = state == RunState::failed || !open_incidents_.empty() ||
                       (last_opened_ && scrapes.last <= last_opened_);
  const double seconds = is_news
                             ? std::max(options_.linger_seconds, options_.linger_incident_seconds)
                             : options_.linger_seconds;
  return std::min(std::chrono::duration<double>(seconds), kLongestPatience);
}

/// A run that ends between two scrapes would leave no trace of its end, nor of why.
void Worker::linger(const Ending& ending) noexcept {
  if (!has_open_endpoint_ || ending.linger == Linger::no) return;
  const auto ended = Clock::now();
  const auto until = ending.began + patience(ending.state);  // what the end took is part of it
  const auto is_wanted = [&] {
    // A scrape that was begun before the end has not seen it.
    return endpoint_->scrapes().last < ended && Clock::now() < until && !CtrlC::was_pressed() &&
           (ending.is_by_signal || ending_signal() == 0);
  };
  if (!is_wanted()) return;
  const auto seconds =
      static_cast<long>(std::ceil(std::chrono::duration<double>(until - ended).count()));
  const auto most =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - ended) + kAnswerBudget + 1s;
  {
    const std::lock_guard lock(mutex_);
    end_by_ = std::max(end_by_, ended + most);
  }
  if (ending.is_by_signal) postpone_death_by_signal(most);
  say("waiting up to " + std::to_string(seconds) + " s for one more scrape; " +
      (ending.is_by_signal ? "a second SIGTERM" : "Ctrl-C") + " ends the wait");
  while (is_wanted()) {
    if (ending.is_by_signal) take_late_steps();
    std::this_thread::sleep_for(5ms);
  }
  if (ending.is_by_signal) take_late_steps();
}

void Worker::take_late_steps() noexcept try {
  (void)drain();
} catch (...) {  // no memory for a step: the next one may fit
  metrics_->add(record::Metric::records_dropped_total, 1, {"ring_overrun"});
}

void Worker::stop_endpoint(std::chrono::milliseconds budget) noexcept {
  if (has_open_endpoint_.exchange(false)) endpoint_->stop(budget);
}

void Worker::begin_end(RunState state, std::string_view reason, Linger linger) noexcept {
  if (is_child() || std::this_thread::get_id() == thread_.get_id()) return;
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  end_by_ = std::max(end_by_, Clock::now() + kEndBudget);
  ending_ = Ending{.state = state, .linger = linger};
  try {
    ending_->reason = reason;
  } catch (...) {  // no memory: the end itself matters more
  }
  changed_.notify_all();
}

bool Worker::has_ended_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return has_ended_; });
}

/// False: it was not done in time, or Ctrl-C ended the wait.
bool Worker::await_thread() {
  if (!process_is_ending() && has_ended_within(kUnnoticedWait)) return true;
  const CtrlC ctrl_c;
  auto until = Clock::time_point::max();
  while (!has_ended_within(kLook)) {
    if (CtrlC::was_pressed()) until = std::min(until, Clock::now() + 2 * kCutBudget);
    const std::lock_guard lock(mutex_);
    if (Clock::now() >= std::min(until, end_by_)) return has_ended_;
  }
  return true;
}

void Worker::await_end() noexcept {
  if (is_child() || std::this_thread::get_id() == thread_.get_id()) return;
  const std::lock_guard one_at_a_time(join_mutex_);
  if (!thread_.joinable()) return;
  if (await_thread())
    thread_.join();
  else
    leave_thread_behind();
}

void Worker::end(RunState state, std::string_view reason, Linger linger) noexcept {
  begin_end(state, reason, linger);
  await_end();
  if (!is_child()) leave_process_watch(*this);
}

/// It waits for a file or for a callback, which we cannot hurry.
void Worker::leave_thread_behind() noexcept {
  is_left_behind_ = true;
  thread_.detach();
  stop_endpoint(kCutBudget);
  give_signals_back();
}

void Worker::give_signals_back() noexcept {
  if (!has_signals_.exchange(false)) return;
  for (const int signal : signals_) give_signal_back(signal);
}

/// A run that ends well leaves no recording.
void Worker::record_at_the_end(const Ending& ending) noexcept {
  if (recorder_ == nullptr) return;
  if (ending.state == RunState::failed)
    (void)recorder_->write_now("failed");
  else if (!open_incidents_.empty())
    (void)recorder_->write_now("exit");
  say_where_recorded();
}

}  // namespace gradvane::agent
