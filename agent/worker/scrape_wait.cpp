#include "agent/worker/scrape_wait.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>

#include "agent/process/process_signals.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::duration<double> kLongestPatience = std::chrono::hours(24 * 365);

}  // namespace

ScrapeWait::ScrapeWait(const Options& options, RunEndpoint& endpoint, const Incidents& incidents,
                       RunProgress& progress, UserCallbacks& callbacks)
    : seconds_(options.linger_seconds),
      incident_seconds_(options.linger_incident_seconds),
      expects_scraper_(options.expect_scraper),
      endpoint_(endpoint),
      incidents_(incidents),
      progress_(progress),
      callbacks_(callbacks) {}

/// How long the end waits for one more scrape.
std::chrono::duration<double> ScrapeWait::patience(record::RunState state) const {
  const auto scrapes = endpoint_.scrapes();
  if (scrapes.count == 0 && !expects_scraper_) return 0s;  // no one is listening
  const auto opened = incidents_.last_opened();
  const bool is_news = state == record::RunState::failed || incidents_.has_open() ||
                       (opened && scrapes.last <= opened);
  const double seconds = is_news ? std::max(seconds_, incident_seconds_) : seconds_;
  return std::min(std::chrono::duration<double>(seconds), kLongestPatience);
}

void ScrapeWait::wait(const Ending& ending, const std::function<void()>& meanwhile) {
  if (!endpoint_.is_open() || ending.linger == Linger::no) return;
  const auto ended = Clock::now();
  const auto until = ending.began + patience(ending.state);  // what the end took is part of it
  const auto is_wanted = [&] {
    // A scrape that was begun before the end has not seen it.
    return endpoint_.scrapes().last < ended && Clock::now() < until && !CtrlC::was_pressed() &&
           (ending.is_by_signal || ending_signal() == 0);
  };
  if (!is_wanted()) return;
  const auto seconds =
      static_cast<long>(std::ceil(std::chrono::duration<double>(until - ended).count()));
  const auto most =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - ended) + kAnswerBudget + 1s;
  progress_.postpone_end(ended + most);
  if (ending.is_by_signal) postpone_death_by_signal(most);
  callbacks_.log("waiting up to " + std::to_string(seconds) + " s for one more scrape; " +
                 (ending.is_by_signal ? "a second SIGTERM" : "Ctrl-C") + " ends the wait");
  while (is_wanted()) {
    if (ending.is_by_signal) meanwhile();
    std::this_thread::sleep_for(5ms);
  }
  if (ending.is_by_signal) meanwhile();
}

}  // namespace gradvane::agent
