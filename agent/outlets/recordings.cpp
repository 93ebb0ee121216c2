#include "agent/outlets/recordings.hpp"

#include <utility>

namespace gradvane::agent {

void Recordings::log_new_file() noexcept try {
  if (recorder_ == nullptr || recorder_->last_file() == logged_) return;
  logged_ = recorder_->last_file();
  callbacks_.log("recording: " + logged_.string());
} catch (...) {  // no memory for a line: the file is there all the same
}

void Recordings::write_on_request(int requests) {
  if (recorder_ == nullptr || requests == std::exchange(requests_, requests)) return;
  const bool ok = recorder_->write_now("signal") == exporters::ExportResult::ok;
  if (!ok) return callbacks_.log("no recording could be written");
  logged_.clear();  // a request is answered, also if an open file was extended
  log_new_file();
}

void Recordings::write_at_the_end(bool has_failed, bool has_open_incident) noexcept {
  if (recorder_ == nullptr) return;
  if (has_failed)
    (void)recorder_->write_now("failed");
  else if (has_open_incident)
    (void)recorder_->write_now("exit");
  log_new_file();
}

}  // namespace gradvane::agent
