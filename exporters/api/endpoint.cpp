#include "exporters/api/endpoint.hpp"

#include <prometheus/metric_family.h>

#include <array>
#include <atomic>
#include <string_view>

#include "exporters/api/api.hpp"
#include "exporters/api/event_stream.hpp"
#include "exporters/api/history_api.hpp"
#include "exporters/api/ranks_json.hpp"
#include "exporters/http/unix_address.hpp"
#include "exporters/page/page.hpp"
#include "exporters/page/page_files.hpp"
#include "exporters/page/runbooks.hpp"
#include "exporters/prometheus/exposition.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

using record::Metric;
using Clock = std::chrono::steady_clock;

namespace {

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string_view word_of(HttpDrop drop) {
  switch (drop) {
    case HttpDrop::limit:
      return "limit";
    case HttpDrop::header_deadline:
      return "header_deadline";
    case HttpDrop::write_deadline:
      break;
  }
  return "write_deadline";
}

}  // namespace

std::string url_of(const EndpointOptions& options, const HttpStart& started) {
  if (!started.unix_address.empty()) return started.unix_address;
  std::string host = options.address;
  if (host == "0.0.0.0" || host == "::") host = options.host.empty() ? "127.0.0.1" : options.host;
  if (host.find(':') != std::string::npos) host = '[' + host + ']';
  const bool has_tls = options.http.web && options.http.web->has_tls();
  return (has_tls ? "https://" : "http://") + host + ':' + std::to_string(started.port);
}

std::string url_of_rank(const std::string& node_url, std::int32_t rank) {
  return node_url + (is_unix_address(node_url) ? ":/rank/" : "/rank/") + std::to_string(rank);
}

struct Endpoint::Wiring : std::enable_shared_from_this<Endpoint::Wiring> {
  std::shared_ptr<MetricSet> metrics;
  std::shared_ptr<StatusBoard> board;
  std::shared_ptr<RunHistory> history;
  std::filesystem::path run_directory;
  std::atomic<std::uint64_t> scrapes = 0;
  std::atomic<Clock::rep> last_scrape = 0;
  std::size_t last_size = 0;  ///< of /metrics, so that the next one is written in one piece

  HttpResponse metrics_page(const HttpRequest& request) {
    const auto begin = Clock::now();
    const ExpositionFormat format = negotiate(request.accept);
    HttpResponse response{.content_type = std::string(content_type(format)),
                          .vary = "Accept, Accept-Encoding",
                          .goes_first = true};
    response.body.reserve(last_size + last_size / 8);
    write_exposition(response.body, metrics->collect(), format, metrics->exemplars());
    last_size = response.body.size();
    const double took = seconds(Clock::now() - begin);
    response.delivered = [self = shared_from_this(), begin, took] {
      self->metrics->add(Metric::scrapes_total, 1);
      self->metrics->add(Metric::scrape_seconds_total, took);
      self->last_scrape = begin.time_since_epoch().count();
      ++self->scrapes;
    };
    return response;
  }

  HttpResponse ready_page() const {
    const auto status = board->status();
    if (status->latest || status->state != record::RunState::starting) return {.body = "ready\n"};
    return {.status = 503, .body = "no step has been seen yet\n"};
  }

  void count_time(Clock::time_point begin) const {
    metrics->add(Metric::agent_seconds_total, seconds(Clock::now() - begin), {"http"});
  }

  [[nodiscard]] std::map<std::string, HttpHandler> routes() {
    using Self = std::shared_ptr<Wiring>;
    const auto timed = [self = shared_from_this()](const auto& handler) -> HttpHandler {
      return [self, handler](const HttpRequest& request) {
        const auto begin = Clock::now();
        HttpResponse response = handler(self, request);
        self->count_time(begin);
        if (response.stream)
          response.stream = [self, stream = std::move(response.stream)] {
            const auto from = Clock::now();
            auto part = stream();
            self->count_time(from);
            return part;
          };
        return response;
      };
    };
    std::map<std::string, HttpHandler> routes;
    routes["/"] =
        timed([](const Self& self, const HttpRequest&) { return overview_page(*self->board); });
    routes["/style.css"] = timed([](const Self&, const HttpRequest&) { return style_sheet(); });
    routes["/icon.svg"] = timed([](const Self&, const HttpRequest&) { return page_icon(); });
    if (has_script())
      routes["/page.js"] = timed([](const Self&, const HttpRequest&) { return page_script(); });
    routes["/metrics"] = timed(
        [](const Self& self, const HttpRequest& request) { return self->metrics_page(request); });
    routes["/-/healthy"] =
        timed([](const Self&, const HttpRequest&) { return HttpResponse{.body = "healthy\n"}; });
    routes["/-/ready"] =
        timed([](const Self& self, const HttpRequest&) { return self->ready_page(); });
    routes["/api/v1/status"] = timed([](const Self& self, const HttpRequest& request) {
      return status_json(*self->board, request.query, self->scrapes.load());
    });
    routes["/api/v1/params"] = timed([](const Self& self, const HttpRequest& request) {
      return params_json(*self->board, request.query);
    });
    routes["/api/v1/param"] = timed([](const Self& self, const HttpRequest& request) {
      return param_history_json(*self->board, *self->history, request.query);
    });
    routes["/api/v1/history"] = timed([](const Self& self, const HttpRequest& request) {
      return history_json(*self->board, *self->history, request.query);
    });
    routes["/api/v1/heatmap"] = timed([](const Self& self, const HttpRequest& request) {
      return heatmap_json(*self->board, *self->history, request.query);
    });
    routes["/api/v1/ranks"] = timed([](const Self& self, const HttpRequest& request) {
      return ranks_json(self->board->status()->run.get(), self->run_directory, request.query);
    });
    routes["/api/v1/events"] = timed([](const Self& self, const HttpRequest& request) {
      return event_stream(self->board, request);
    });
    routes["/api/v1/steps"] = timed([](const Self& self, const HttpRequest& request) {
      return steps_json(*self->board, request.query);
    });
    routes["/api/v1/syncs"] = timed([](const Self& self, const HttpRequest& request) {
      return syncs_json(*self->board, request.query);
    });
    for (auto& [path, handler] : runbook_routes())
      routes[path] = timed([handler = std::move(handler)](const Self&, const HttpRequest& request) {
        return handler(request);
      });
    return routes;
  }

  HttpServerOptions counted(HttpServerOptions options) {
    options.answered = [self = shared_from_this()](int status) {
      self->metrics->add(Metric::http_requests_total, 1, {std::to_string(status)});
    };
    options.dropped = [self = shared_from_this()](HttpDrop drop) {
      self->metrics->add(Metric::http_connections_dropped_total, 1, {word_of(drop)});
    };
    return options;
  }
};

Endpoint::Endpoint(std::shared_ptr<MetricSet> metrics, std::shared_ptr<StatusBoard> board,
                   std::shared_ptr<RunHistory> history)
    : wiring_(std::make_shared<Wiring>()) {
  wiring_->metrics = std::move(metrics);
  wiring_->board = std::move(board);
  wiring_->history = std::move(history);
}

Endpoint::~Endpoint() = default;

EndpointStart Endpoint::start(const EndpointOptions& options) noexcept try {
  wiring_->run_directory = options.run_directory;
  HttpServerOptions http = options.http;
  http.hosts = host_rule(options.address, options.host, options.allowed_hosts);
  server_ = std::make_unique<HttpServer>(wiring_->routes(), wiring_->counted(std::move(http)));
  HttpStart started = server_->start(options.address, options.port, options.port_tries);
  if (!started.error.empty()) return {.error = std::move(started.error)};
  return {.url = url_of(options, started), .port = started.port};
} catch (const std::exception& error) {
  return {.error = error.what()};
}

std::string Endpoint::start_on_unix(int directory, const std::string& name,
                                    const std::filesystem::path& run_directory) noexcept try {
  wiring_->run_directory = run_directory;
  server_ = std::make_unique<HttpServer>(wiring_->routes(), wiring_->counted({}));
  return server_->start_on_unix(directory, name).error;
} catch (const std::exception& error) {
  return error.what();
}

Scrapes Endpoint::scrapes() const noexcept {
  const std::uint64_t count = wiring_->scrapes;
  if (count == 0) return {};
  return {count, Clock::time_point(Clock::duration(wiring_->last_scrape.load()))};
}

void Endpoint::stop(std::chrono::milliseconds budget) noexcept {
  if (server_) server_->stop(budget);
}

bool Endpoint::leave_if_closed() noexcept { return server_ && server_->leave_if_closed(); }

void Endpoint::close_in_child() noexcept {
  if (server_) server_->close_in_child();
}

}  // namespace gradvane::exporters
