#pragma once
// The run's HTTP endpoint: which path shows what.
//
//   /                 a page for people: what it needs is below, and without JavaScript it shows less
//   /page.js, /style.css, /icon.svg
//   /metrics          for Prometheus
//   /-/healthy        200 while the endpoint answers
//   /-/ready          200 from the first step, or from the state `running` on; 503 before
//   /api/v1/status    the run now
//   /api/v1/params    every parameter; ?sort=&order=&limit=&offset=&search=
//   /api/v1/param     one parameter over time; ?name=
//   /api/v1/steps     steps lately; ?since=&limit=
//   /api/v1/history   the run over time, in columns; ?resolution=&since=&limit=&optimizer=
//   /api/v1/heatmap   groups or parameters by steps; ?rows=&value=&group=&search=&since=&limit=
//   /api/v1/syncs     what made the CPU wait for the GPU; ?limit=&origin=
//   /api/v1/ranks     processes of the run that have endpoint files here
//   /api/v1/events    what happens, as it happens; ?since=&optimizer=
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "exporters/board/status_board.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/http/http_server.hpp"
#include "exporters/metric_set.hpp"

namespace gradvane::exporters {

struct EndpointOptions {
  std::string address = "127.0.0.1";  ///< or unix:/path, which has no port
  std::uint16_t port = 9464;          ///< taken: the next free one of `port_tries`; 0: any
  int port_tries = 101;
  std::string host = {};  ///< in the URL where `address` is 0.0.0.0 or ::
  std::string allowed_hosts =
      {};  ///< names by which requests may call it, besides those of host_rule()
  std::filesystem::path run_directory = {};  ///< with the endpoint files of the run; empty: none
  HttpServerOptions http = {};               ///< `hosts` comes from the above
};

struct EndpointStart {
  std::string url = {};    ///< http://address:port or unix:/path; empty where it did not start
  std::uint16_t port = 0;  ///< bound port; 0 on a unix socket
  std::string error = {};  ///< why it did not start, for a person
};

/// http://address:port, as others on the network write it, or https where the web config has TLS; unix:/path of a unix
/// socket.
[[nodiscard]] std::string url_of(const EndpointOptions& options, const HttpStart& started);

/// Of rank N at a port that ranks share: url/rank/N, and unix:/path:/rank/N.
[[nodiscard]] std::string url_of_rank(const std::string& node_url, std::int32_t rank);

/// How often /metrics was delivered to its last byte. `last` is when the latest of them was begun: it
/// shows everything that was exported before.
struct Scrapes {
  std::uint64_t count = 0;
  std::optional<std::chrono::steady_clock::time_point> last;
};

/// Threading: start, stop and the destructor from one thread; scrapes() from any. The server's thread
/// reads snapshots and the metric set only, and shares no lock with the training thread.
class Endpoint {
 public:
  /// Without a history of its own, nothing is ever drawn: a process that takes no steps.
  Endpoint(std::shared_ptr<MetricSet> metrics, std::shared_ptr<StatusBoard> board,
           std::shared_ptr<RunHistory> history = std::make_shared<RunHistory>());
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;  // one endpoint, one port
  Endpoint& operator=(const Endpoint&) = delete;

  /// To be called once. Does not throw.
  [[nodiscard]] EndpointStart start(const EndpointOptions& options) noexcept;

  /// As start(), on a unix socket that only this user can reach; see HttpServer::start_on_unix().
  /// @param directory  an open one, needed for this call only
  /// @return           empty, or why it did not start
  [[nodiscard]] std::string start_on_unix(int directory, const std::string& name,
                                          const std::filesystem::path& run_directory) noexcept;

  [[nodiscard]] Scrapes scrapes() const noexcept;

  /// Lets answers that are on their way finish, within `budget`. Idempotent.
  void stop(std::chrono::milliseconds budget) noexcept;

  /// As HttpServer's. From the thread that calls stop().
  [[nodiscard]] bool leave_if_closed() noexcept;

  /// In a forked child: gives up the sockets. Async-signal-safe; the object is inert afterwards.
  void close_in_child() noexcept;

 private:
  struct Wiring;
  std::shared_ptr<Wiring> wiring_;  ///< the handlers hold it too
  std::unique_ptr<HttpServer> server_;
};

}  // namespace gradvane::exporters
