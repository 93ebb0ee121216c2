#pragma once
// The HTTP endpoint of a run, and the file that shows programs on this machine where it is.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/run_directories.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "exporters/api/endpoint.hpp"
#include "exporters/api/endpoint_file.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/node/node_port.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::agent {

/// Closed until start(), which a run without an endpoint never calls: then every call is harmless.
/// Ranks of one node share a port, unless the option share_port is off: each answers on a unix socket in the run
/// directory, and one of them serves the port for all.
/// Threading: start() on the thread of the set-up; url(), stop() and close_in_child() from any
/// thread; all else from the worker's.
class RunEndpoint {
 public:
  /// What the endpoint shows.
  struct Shown {
    std::shared_ptr<exporters::MetricSet> metrics;
    std::shared_ptr<exporters::StatusBoard> board;
    std::shared_ptr<exporters::RunHistory> history;
  };

  /// Throws std::runtime_error or std::invalid_argument if the endpoint cannot be had, with what to
  /// change. To be called once.
  void start(const Options& options, const record::RunInfo& run, Shown shown,
             const RunDirectories& directories, UserCallbacks& callbacks);

  /// Empty while there is none.
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  /// Precondition: it has been started.
  [[nodiscard]] exporters::Scrapes scrapes() const noexcept { return endpoint_->scrapes(); }
  void write_state(record::RunState state) noexcept;
  /// Serves the node's port if the rank that did so is gone. Looks four times a second at most. Says what has become of a
  /// changed web config.
  void take_over_port(UserCallbacks& callbacks) noexcept;
  /// True if the program has closed the endpoint's descriptors since the last call: it is closed
  /// then.
  [[nodiscard]] bool leave_if_closed() noexcept;
  /// The first call closes it.
  void stop(std::chrono::milliseconds budget) noexcept;
  /// Async-signal-safe.
  void close_in_child() noexcept;

 private:
  [[nodiscard]] exporters::EndpointStart share_port(exporters::EndpointOptions options,
                                                    const record::RunInfo& run);

  /// What the endpoint's thread has to say, until the worker says it.
  class Notes {
   public:
    void add(const std::string& note) {
      const std::lock_guard lock(mutex_);
      notes_.push_back(note);
    }
    [[nodiscard]] std::vector<std::string> take() noexcept {
      const std::lock_guard lock(mutex_);
      return std::exchange(notes_, {});
    }

   private:
    std::mutex mutex_;
    std::vector<std::string> notes_;
  };

  std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  std::unique_ptr<exporters::Endpoint> endpoint_;
  std::unique_ptr<exporters::NodePort> node_;  ///< null: the port is this rank's own
  std::shared_ptr<exporters::RunDirectory> directory_;
  std::optional<exporters::EndpointFile> file_;
  std::string url_;
  std::string node_url_;
  std::atomic<bool> is_open_{false};
};

}  // namespace gradvane::agent
