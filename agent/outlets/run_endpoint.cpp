#include "agent/outlets/run_endpoint.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "agent/public/options.hpp"
#include "exporters/files/run_token.hpp"
#include "exporters/http/unix_address.hpp"
#include "exporters/text/text_escape.hpp"
#include "exporters/web/configured_access.hpp"

namespace gradvane::agent {

namespace {

std::string token_of(const std::string& option, exporters::RunDirectory& directory) {
  if (option != exporters::kTokenOfDirectory) return option;
  std::string token = exporters::run_token(directory.use(), directory.owner());
  if (token.empty())
    throw std::runtime_error("token: auto needs the file " + (directory.path() / "token").string() +
                             ": " + std::strerror(errno) +
                             "; set run_dir, or token to a text of your own");
  return token;
}

}  // namespace

void RunEndpoint::start(const Options& options, const record::RunInfo& run, Shown shown,
                        const RunDirectories& directories, UserCallbacks& callbacks) {
  endpoint_ = std::make_unique<exporters::Endpoint>(
      std::move(shown.metrics), std::move(shown.board), std::move(shown.history));
  exporters::EndpointOptions endpoint;
  endpoint.address = options.address;
  const bool is_unix = exporters::is_unix_address(options.address);
  endpoint.allowed_hosts = options.allowed_hosts;
  endpoint.host = run.host;
  directory_ = directories.run();
  endpoint.run_directory = directory_->path();
  endpoint.port = static_cast<std::uint16_t>(std::max(options.port, 0));
  endpoint.http.token = token_of(options.token, *directory_);
  exporters::EndpointStart started;
  std::string own_port_because;
  if (!options.web_config.empty())
    endpoint.http.web = std::make_shared<exporters::ConfiguredAccess>(
        options.web_config, [notes = notes_](const std::string& note) { notes->add(note); });
  if (endpoint.http.web && !endpoint.http.web->has_tls() && !endpoint.http.web->has_users() &&
      endpoint.http.token.empty() && !options.insecure && !exporters::is_loopback(options.address))
    throw std::invalid_argument("web_config " + options.web_config +
                                " has neither TLS nor users, and address = '" + options.address +
                                "' would let everyone on the network read this run; add them, set "
                                "token, or insecure to on if the network is yours alone");
  // The commands on this machine ask over the unix socket, and need no certificate and no password.
  if (options.share_port && (run.world_size > 1 || endpoint.http.web)) {
    started = share_port(endpoint, run);
    own_port_because = started.error;
  }
  if (started.url.empty()) {
    node_.reset();
    const int port = options.port == 0 ? 0 : options.port + run.local_rank;
    if (port > 65535)
      throw std::invalid_argument("port: " + std::to_string(options.port) + " plus local rank " +
                                  std::to_string(run.local_rank) + " is above 65535");
    endpoint.port = static_cast<std::uint16_t>(port);
    if (is_unix && run.local_rank > 0) endpoint.address += '.' + std::to_string(run.local_rank);
    started = endpoint_->start(endpoint);
  }
  if (started.url.empty())
    throw std::runtime_error("endpoint: " + started.error +
                             "; set address or port, or port = -1 to go without");
  is_open_ = true;
  node_url_ = started.url;
  const bool has_others = node_ && run.world_size > 1;
  url_ = has_others ? exporters::url_of_rank(node_url_, run.rank) : node_url_;
  const bool is_elsewhere = is_unix ? started.url != endpoint.address
                                    : endpoint.port != 0 && started.port != endpoint.port;
  const bool has_moved = is_elsewhere && (node_ == nullptr || node_->is_serving());
  const std::string asked_for =
      is_unix ? endpoint.address : "port " + std::to_string(endpoint.port);
  if (has_moved)
    callbacks.log(asked_for + " is taken, using " +
                  (is_unix ? started.url : std::to_string(started.port)));
  if (!own_port_because.empty() && run.world_size > 1)
    callbacks.log("this rank has a port of its own, as the ranks of this node cannot share one: " +
                  own_port_because);
  file_.emplace(directory_, run, node_url_, endpoint.http.token, node_ ? node_->socket() : "");
  const std::string error = file_->write(url_, record::RunState::starting);
  const bool is_news = !error.empty() && error != directory_->note();
  if (is_renamed(options, run))
    callbacks.log("a run with the default name is live on this machine, so this one is called " +
                  run.run + "; the option run gives it a name");
  // The address of the port that ranks share is said once: it shows them all.
  const std::string name =
      "run " + run.run +
      (has_others ? ": " + node_url_ : ", rank " + std::to_string(run.rank) + ": " + url_);
  if (node_ == nullptr || run.local_rank == 0 || !directory_->note().empty())
    callbacks.log(name + ", run directory " + directories.text() +
                  (is_news ? " (" + error + ")" : ""));
  // Who set no log would not learn where to look, nor that another run has the port that was asked
  // for.
  if (!callbacks.has_log() && run.local_rank == 0)
    std::fprintf(stderr, "gradvane: %s%s\n", exporters::plain(name).c_str(),
                 has_moved ? (" (" + exporters::plain(asked_for) + " is taken)").c_str() : "");
}

/// The endpoint on a unix socket, and the port of the node; an error if there can be none.
exporters::EndpointStart RunEndpoint::share_port(exporters::EndpointOptions options,
                                                 const record::RunInfo& run) {
  const int directory = directory_->use();
  if (directory < 0) return {.error = "there is no run directory"};
  node_ = std::make_unique<exporters::NodePort>(std::move(options), run.rank);
  exporters::EndpointStart started = node_->start();
  if (!started.error.empty()) return started;
  started.error = endpoint_->start_on_unix(directory, node_->socket(), directory_->path());
  if (!started.error.empty()) started.url.clear();
  return started;
}

void RunEndpoint::write_state(record::RunState state) noexcept {
  if (file_) (void)file_->write(url_, state);
}

void RunEndpoint::take_over_port(UserCallbacks& callbacks) noexcept {
  for (const std::string& note : notes_->take()) callbacks.log(note);
  if (node_ && is_open_ && node_->look())
    callbacks.log("this rank now serves " + node_url_ + " for the ranks of this node");
}

bool RunEndpoint::leave_if_closed() noexcept {
  if (!is_open_) return false;
  const bool has_left_port = node_ && node_->leave_if_closed();
  if (!endpoint_->leave_if_closed()) return has_left_port;
  return is_open_.exchange(false) || has_left_port;
}

void RunEndpoint::stop(std::chrono::milliseconds budget) noexcept {
  if (!is_open_.exchange(false)) return;
  if (node_) node_->stop(budget);  // it may be in the middle of asking this rank
  endpoint_->stop(budget);
}

void RunEndpoint::close_in_child() noexcept {
  if (endpoint_) endpoint_->close_in_child();
  if (node_) node_->close_in_child();
}

}  // namespace gradvane::agent
