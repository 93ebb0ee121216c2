#pragma once
// All that a run goes out through: its exporters, its directories and its endpoint.
#include <memory>
#include <string>
#include <string_view>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/run_directories.hpp"
#include "agent/outlets/run_endpoint.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "exporters/alert_push/alert_push.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/recorder/flight_recorder.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::agent {

/// Sets up what the options ask for. Unless finish() was called, its end withdraws what was set up:
/// a set-up that is refused leaves no file behind.
/// Threading: built on the thread of the set-up, then the worker's, except what MetricSet and
/// RunEndpoint offer to any thread.
class Outlets {
 public:
  /// Throws std::runtime_error or std::invalid_argument for what cannot be had, with what to
  /// change.
  Outlets(const Options& options, const record::RunInfo& run, UserCallbacks& callbacks);
  ~Outlets() { withdraw(); }
  Outlets(const Outlets&) = delete;  // who exports holds its address
  Outlets& operator=(const Outlets&) = delete;

  [[nodiscard]] exporters::MetricSet& metrics() noexcept { return *metrics_; }
  [[nodiscard]] exporters::ExporterSet& exporters() noexcept { return exporters_; }
  /// The one exporter that only people look at.
  [[nodiscard]] exporters::StatusBoard& board() noexcept { return *board_; }
  /// Null if there is none.
  [[nodiscard]] const std::shared_ptr<exporters::recording::FlightRecorder>& recorder()
      const noexcept {
    return recorder_;
  }
  [[nodiscard]] RunDirectories& directories() noexcept { return directories_; }
  [[nodiscard]] RunEndpoint& endpoint() noexcept { return endpoint_; }
  [[nodiscard]] const RunEndpoint& endpoint() const noexcept { return endpoint_; }

  /// The exporters and the endpoint file get the state.
  void set_run_state(record::RunState state, std::string_view reason) noexcept;
  /// Called about once a second: logs what has gone wrong since, each thing once.
  void look();

 private:
  void start_exporters(const Options& options, const record::RunInfo& run);
  void add_recorder(const Options& options);
  void add_alerts(const Options& options);
  void withdraw() noexcept;
  void log_alert_error();

  UserCallbacks& callbacks_;
  std::shared_ptr<exporters::MetricSet> metrics_;
  std::shared_ptr<exporters::StatusBoard> board_;
  std::shared_ptr<exporters::RunHistory> history_;  ///< fed where there is an endpoint to show it
  exporters::ExporterSet exporters_;
  RunDirectories directories_;
  std::shared_ptr<exporters::recording::FlightRecorder> recorder_;  ///< null: none
  std::shared_ptr<exporters::AlertPush> alerts_;                    ///< null: none
  std::string alert_error_;                                         ///< said already
  RunEndpoint endpoint_;
};

}  // namespace gradvane::agent
