// Worker's part that opens its endpoint and starts its thread.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "agent/worker/process_signals.hpp"
#include "agent/worker/worker.hpp"
#include "exporters/files/file_word.hpp"
#include "exporters/files/old_runs.hpp"
#include "exporters/signals_blocked.hpp"
#include "exporters/step_log/step_log.hpp"
#include "exporters/text/text_escape.hpp"

namespace gradvane::agent {

namespace {

constexpr std::int64_t kDiskBytes = std::int64_t{32} << 20;
constexpr std::int64_t kDiskBytesInMemory = std::int64_t{8} << 20;

/// What somebody asked for by name is there, or the run does not start.
void require_named(const std::string& option, const exporters::RunDirectory& directory) {
  if (directory.is_as_named()) return;
  throw std::runtime_error(option + ": " + directory.note() +
                           "; name another directory, or leave the option out");
}

void require_writable(const exporters::StepLog& step_log) {
  if (step_log.error() == 0) return;
  throw std::runtime_error("step_log: " + step_log.path().string() +
                           " cannot be written: " + std::strerror(step_log.error()) +
                           "; name another file, or leave the option out");
}

}  // namespace

/// Where the endpoint file goes and, unless the user named another place, the recordings.
void Worker::claim_run_directory() {
  if (options_.port < 0 && (!options_.recorder || !options_.recorder_dir.empty())) return;
  run_directory_ = std::make_shared<exporters::RunDirectory>(
      exporters::RunDirectoryOptions{.named = options_.run_dir,
                                     .run = run_.run,
                                     .lock_name = "rank" + std::to_string(run_.rank) + ".lock"});
  if (!options_.run_dir.empty()) require_named("run_dir", *run_directory_);
  if (options_.port >= 0 || run_directory_->note().empty()) return;  // else said with the endpoint
  say("run directory: " + run_directory_text());
}

std::string Worker::run_directory_text() const {
  const std::string& note = run_directory_->note();
  const std::string path = run_directory_->path().string();
  if (path.empty()) return "none, no files are written (" + note + ")";
  return note.empty() ? path : path + " (" + note + ")";
}

void Worker::start_recorder() {
  exporters::recording::RecorderOptions recorder;
  recorder.directory = run_directory_;
  if (!options_.recorder_dir.empty()) {
    recordings_directory_ = std::make_shared<exporters::RunDirectory>(
        exporters::RunDirectoryOptions{.named = options_.recorder_dir,
                                       .run = run_.run,
                                       .lock_name = exporters::file_word(run_.run) + ".rank" +
                                                    std::to_string(run_.rank) + ".lock",
                                       .has_fallback = false});
    require_named("recorder_dir", *recordings_directory_);
    recorder.directory = recordings_directory_;
    if (!recordings_directory_->note().empty())
      say("recorder_dir: " + recordings_directory_->note() + "; recordings go to " +
          recordings_directory_->path().string());
  }
  recorder.steps = options_.recorder_steps;
  recorder.memory_bytes = static_cast<std::size_t>(options_.recorder_memory_bytes);
  const bool is_automatic = options_.recorder_disk_bytes < 0;
  recorder.disk_bytes =
      static_cast<std::size_t>(is_automatic ? kDiskBytes : options_.recorder_disk_bytes);
  if (is_automatic) recorder.disk_bytes_in_memory = static_cast<std::size_t>(kDiskBytesInMemory);
  recorder.kept = options_.recorder_kept;
  recorder_ = std::make_shared<exporters::recording::FlightRecorder>(std::move(recorder), metrics_);
  exporters_.add(recorder_);
  recording_requests_ = recording_requests();
}

/// From here on the process's signals are ours: the thread has to start, or they are given back.
void Worker::take_signals() {
  if (options_.handle_sigterm) signals_ = {SIGINT, SIGTERM};
  if (recorder_ != nullptr && options_.recorder_signal != RecorderSignal::none)
    signals_.push_back(options_.recorder_signal == RecorderSignal::usr1 ? SIGUSR1 : SIGUSR2);
  has_signals_ = true;
  for (const int signal : signals_) {
    if (take_signal(signal) || signal == SIGTERM || signal == SIGINT) continue;
    say(std::string("recorder_signal: ") + (signal == SIGUSR1 ? "SIGUSR1" : "SIGUSR2") +
        " is handled by somebody else and asks for no recording");
  }
}

void Worker::start_alerts() {
  exporters::AlertPushOptions alerts;
  alerts.url = options_.alertmanager_url;
  alerts.labels = exporters::parse_alert_labels(options_.alertmanager_labels);
  alerts_ = std::make_shared<exporters::AlertPush>(std::move(alerts), metrics_);
  exporters_.add(alerts_);
}

void Worker::start_exporters() {
  std::shared_ptr<exporters::StepLog> step_log;
  if (!options_.step_log.empty()) {
    step_log = std::make_shared<exporters::StepLog>(
        exporters::StepLogOptions{options_.step_log, options_.step_log_max_bytes});
    exporters_.add(step_log);
  }
  claim_run_directory();
  if (options_.recorder) start_recorder();
  if (!options_.alertmanager_url.empty()) start_alerts();
  model_ = std::make_shared<record::ModelInfo>();
  const auto started = exporters_.start(run_, model_);
  if (step_log != nullptr) require_writable(*step_log);
  if (started == exporters::ExportResult::failed)
    say("an exporter could not start; gradvane_export_failures_total says which");
  if (step_log != nullptr && !step_log->note().empty()) say(step_log->note());
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
  endpoint.run_directory = run_directory_->path();
  const exporters::EndpointStart started = endpoint_->start(endpoint);
  if (started.url.empty())
    throw std::runtime_error("endpoint: " + started.error +
                             "; set address or port, or port = -1 to go without");
  has_open_endpoint_ = true;
  url_ = started.url;
  if (alerts_ != nullptr) alerts_->set_generator_url(url_);
  const bool has_moved = port != 0 && started.port != port;
  if (has_moved)
    say("port " + std::to_string(port) + " is taken, using " + std::to_string(started.port));
  endpoint_file_.emplace(run_directory_, run_);
  const std::string error = endpoint_file_->write(url_, state_);
  const bool is_news = !error.empty() && error != run_directory_->note();
  const std::string name = "run " + run_.run + ", rank " + std::to_string(run_.rank) + ": " + url_;
  say(name + ", run directory " + run_directory_text() + (is_news ? " (" + error + ")" : ""));
  // Who set no log would not learn where to look, nor that another run has the port that was asked for.
  if (!options_.log && run_.local_rank == 0)
    std::fprintf(stderr, "gradvane: %s%s\n", exporters::plain(name).c_str(),
                 has_moved ? (" (port " + std::to_string(port) + " is taken)").c_str() : "");
}

/// Called on the worker's thread: it looks at the disk.
void Worker::remove_old_rings() noexcept try {
  if (run_directory_ != nullptr && options_.run_dir.empty())
    (void)exporters::remove_old_rings(exporters::temporary_directory(), ::geteuid());
} catch (...) {  // no memory: they stay
}

void Worker::start_thread() {
  try {
    take_signals();
    const exporters::SignalsBlocked for_the_thread_to_inherit;
    thread_ = std::jthread([this] { run(); });
  } catch (...) {
    give_signals_back();
    leave_process_watch(*this);
    throw;
  }
  ::pthread_setname_np(thread_.native_handle(), "gradvane");
}

}  // namespace gradvane::agent
