#include "agent/outlets/run_endpoint.hpp"

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "agent/public/options.hpp"
#include "exporters/text/text_escape.hpp"

namespace gradvane::agent {

void RunEndpoint::start(const Options& options, const record::RunInfo& run, Shown shown,
                        const RunDirectories& directories, UserCallbacks& callbacks) {
  endpoint_ = std::make_unique<exporters::Endpoint>(
      std::move(shown.metrics), std::move(shown.board), std::move(shown.history));
  exporters::EndpointOptions endpoint;
  endpoint.address = options.address;
  endpoint.allowed_hosts = options.allowed_hosts;
  const int port = options.port == 0 ? 0 : options.port + run.local_rank;
  if (port > 65535)
    throw std::invalid_argument("port: " + std::to_string(options.port) + " plus local rank " +
                                std::to_string(run.local_rank) + " is above 65535");
  endpoint.port = static_cast<std::uint16_t>(port);
  endpoint.host = run.host;
  endpoint.run_directory = directories.run()->path();
  const exporters::EndpointStart started = endpoint_->start(endpoint);
  if (started.url.empty())
    throw std::runtime_error("endpoint: " + started.error +
                             "; set address or port, or port = -1 to go without");
  is_open_ = true;
  url_ = started.url;
  const bool has_moved = port != 0 && started.port != port;
  if (has_moved)
    callbacks.log("port " + std::to_string(port) + " is taken, using " +
                  std::to_string(started.port));
  file_.emplace(directories.run(), run);
  const std::string error = file_->write(url_, record::RunState::starting);
  const bool is_news = !error.empty() && error != directories.run()->note();
  if (is_renamed(options, run))
    callbacks.log("a run with the default name is live on this machine, so this one is called " +
                  run.run + "; the option run gives it a name");
  const std::string name = "run " + run.run + ", rank " + std::to_string(run.rank) + ": " + url_;
  callbacks.log(name + ", run directory " + directories.text() +
                (is_news ? " (" + error + ")" : ""));
  // Who set no log would not learn where to look, nor that another run has the port that was asked
  // for.
  if (!callbacks.has_log() && run.local_rank == 0)
    std::fprintf(stderr, "gradvane: %s%s\n", exporters::plain(name).c_str(),
                 has_moved ? (" (port " + std::to_string(port) + " is taken)").c_str() : "");
}

void RunEndpoint::write_state(record::RunState state) noexcept {
  if (file_) (void)file_->write(url_, state);
}

bool RunEndpoint::leave_if_closed() noexcept {
  return is_open_ && endpoint_->leave_if_closed() && is_open_.exchange(false);
}

void RunEndpoint::stop(std::chrono::milliseconds budget) noexcept {
  if (is_open_.exchange(false)) endpoint_->stop(budget);
}

void RunEndpoint::close_in_child() noexcept {
  if (endpoint_) endpoint_->close_in_child();
}

}  // namespace gradvane::agent
