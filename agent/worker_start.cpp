// Worker's part that opens its endpoint and starts its thread.
#include <pthread.h>
#include <signal.h>

#include <stdexcept>
#include <utility>

#include "agent/worker.hpp"
#include "exporters/signals_blocked.hpp"

namespace gradvane::agent {

void Worker::start_recorder() {
  exporters::recording::RecorderOptions recorder;
  recorder.directory = run_directory();
  if (!options_.recorder_dir.empty()) recorder.directory = options_.recorder_dir;
  recorder.steps = options_.recorder_steps;
  recorder.memory_bytes = static_cast<std::size_t>(options_.recorder_memory_bytes);
  recorder.disk_bytes = static_cast<std::size_t>(options_.recorder_disk_bytes);
  recorder.kept = options_.recorder_kept;
  recorder_ = std::make_shared<exporters::recording::FlightRecorder>(std::move(recorder), metrics_);
  exporters_.add(recorder_);
  recording_requests_ = recording_requests();
  if (options_.recorder_signal == RecorderSignal::none) return;
  const bool is_first = options_.recorder_signal == RecorderSignal::usr1;
  if (!take_recording_requests(is_first ? SIGUSR1 : SIGUSR2))
    say(std::string("recorder_signal: ") + (is_first ? "SIGUSR1" : "SIGUSR2") +
        " is handled by somebody else and asks for no recording");
}

void Worker::start_alerts() {
  exporters::AlertPushOptions alerts;
  alerts.url = options_.alertmanager_url;
  alerts.labels = exporters::parse_alert_labels(options_.alertmanager_labels);
  alerts_ = std::make_shared<exporters::AlertPush>(std::move(alerts), metrics_);
  exporters_.add(alerts_);
}

std::filesystem::path Worker::run_directory() const {
  return options_.run_dir.empty() ? exporters::default_run_directory(run_.run)
                                  : std::filesystem::path(options_.run_dir);
}

void Worker::start_endpoint() {
  endpoint_ = std::make_unique<exporters::Endpoint>(metrics_, board_, history_);
  exporters::EndpointOptions endpoint;
  endpoint.address = options_.address;
  endpoint.allowed_hosts = options_.allowed_hosts;
  const int port = options_.port == 0 ? 0 : options_.port + run_.local_rank;
  if (port > 65535)
    throw std::invalid_argument("port: " + std::to_string(options_.port) + " plus local rank " +
                                std::to_string(run_.local_rank) + " is above 65535");
  endpoint.port = static_cast<std::uint16_t>(port);
  endpoint.host = run_.host;
  endpoint.run_directory = run_directory();
  const exporters::EndpointStart started = endpoint_->start(endpoint);
  if (started.url.empty())
    throw std::runtime_error("endpoint: " + started.error +
                             "; set address or port, or port = -1 to go without");
  url_ = started.url;
  if (alerts_ != nullptr) alerts_->set_generator_url(url_);
  if (port != 0 && started.port != port)
    say("port " + std::to_string(port) + " is taken, using " + std::to_string(started.port));

  const auto directory = run_directory();
  endpoint_file_.emplace(directory, run_);
  const std::string error = endpoint_file_->write(url_, state_);
  say("run " + run_.run + ", rank " + std::to_string(run_.rank) + ": " + url_ + ", run directory " +
      directory.string() + (error.empty() ? "" : " (" + error + ")"));
}

void Worker::start_thread() {
  const exporters::SignalsBlocked for_the_thread_to_inherit;
  try {
    thread_ = std::jthread([this] { run(); });
  } catch (...) {
    leave_process_watch(*this);
    throw;
  }
  ::pthread_setname_np(thread_.native_handle(), "gradvane");
}

}  // namespace gradvane::agent
