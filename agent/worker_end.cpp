// Worker's part that ends the run.
#include <algorithm>

#include "agent/worker.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;
using record::RunState;

constexpr auto kExportBudget = 1s;
constexpr auto kAnswerBudget =
    5s;  // for answers on their way: viewers learn from them that it is over

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
  (void)exporters_.finish(std::chrono::milliseconds(kExportBudget));
  linger(ending.state);
  if (endpoint_) endpoint_->stop(std::chrono::milliseconds(kAnswerBudget));
  if (run_directory_) run_directory_->release();
  if (recordings_directory_) recordings_directory_->release();
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

/// A run that ends between two scrapes would leave no trace of its end, nor of why.
void Worker::linger(RunState state) noexcept {
  if (!endpoint_) return;
  const auto scrapes = endpoint_->scrapes();
  if (scrapes.count == 0 && !options_.expect_scraper) return;  // nobody is listening
  const bool is_news = state == RunState::failed || !open_incidents_.empty() ||
                       (last_opened_ && scrapes.last <= last_opened_);
  const double patience = is_news
                              ? std::max(options_.linger_seconds, options_.linger_incident_seconds)
                              : options_.linger_seconds;
  const auto ended = std::chrono::steady_clock::now();
  const auto until = ended + std::chrono::duration<double>(patience);
  // A scrape that was begun before the end has not seen it.
  while (endpoint_->scrapes().last < ended && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(5ms);
}

void Worker::end(RunState state, std::string_view reason) noexcept {
  if (is_child() || std::this_thread::get_id() == thread_.get_id()) return;
  try {
    const std::lock_guard lock(mutex_);
    if (!ending_) ending_ = Ending{state, std::string(reason)};
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!ending_) ending_ = Ending{state, {}};
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

/// A run that ends well leaves no recording.
void Worker::record_at_the_end(const Ending& ending) noexcept {
  if (recorder_ == nullptr) return;
  if (ending.state == RunState::failed)
    (void)recorder_->write_now("failed");
  else if (!open_incidents_.empty())
    (void)recorder_->write_now("exit");
}

}  // namespace gradvane::agent
