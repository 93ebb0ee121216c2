#pragma once
// The wait for one more scrape at the end of a run.
#include <chrono>
#include <functional>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/run_endpoint.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "agent/worker/ending.hpp"
#include "agent/worker/incidents.hpp"
#include "agent/worker/run_progress.hpp"

namespace gradvane::agent {

/// A run that ends between two scrapes would leave no trace of its end, nor of why.
/// Threading: the worker's.
class ScrapeWait {
 public:
  ScrapeWait(const Options& options, RunEndpoint& endpoint, const Incidents& incidents,
             RunProgress& progress, UserCallbacks& callbacks);

  /// Returns at once if no one is listening. Calls `meanwhile`, which does not throw, if the run
  /// ends by a signal: until it dies the program trains on.
  void wait(const Ending& ending, const std::function<void()>& meanwhile);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::chrono::duration<double> patience(record::RunState state) const;

  double seconds_;
  double incident_seconds_;  ///< where an incident has not been scraped, or is open
  bool expects_scraper_;     ///< waits even where nothing was ever scraped
  RunEndpoint& endpoint_;
  const Incidents& incidents_;
  RunProgress& progress_;
  UserCallbacks& callbacks_;
};

}  // namespace gradvane::agent
