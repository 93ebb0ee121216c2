#include "agent/outlets/run_directories.hpp"

#include <unistd.h>

#include <stdexcept>

#include "exporters/files/file_word.hpp"
#include "exporters/files/old_runs.hpp"

namespace gradvane::agent {
namespace {

/// A directory that was asked for by name is there, or the run does not start.
void require_named(const std::string& option, const exporters::RunDirectory& directory) {
  if (directory.is_as_named()) return;
  throw std::runtime_error(option + ": " + directory.note() +
                           "; name another directory, or leave the option out");
}

}  // namespace

RunDirectories::RunDirectories(const Options& options, const record::RunInfo& run,
                               UserCallbacks& callbacks)
    : is_named_(!options.run_dir.empty()) {
  const bool has_endpoint = options.port >= 0;
  if (has_endpoint || (options.recorder && options.recorder_dir.empty())) {
    claim_run_directory(options, run);
    // A note about it stands in the endpoint's line, if there is an endpoint.
    if (!has_endpoint && !run_->note().empty()) callbacks.log("run directory: " + text());
  }
  if (!options.recorder) return;
  recordings_ = run_;
  if (!options.recorder_dir.empty()) claim_recordings(options, run, callbacks);
}

void RunDirectories::claim_run_directory(const Options& options, const record::RunInfo& run) {
  run_ = std::make_shared<exporters::RunDirectory>(
      exporters::RunDirectoryOptions{.named = options.run_dir,
                                     .run = run.run,
                                     .lock_name = "rank" + std::to_string(run.rank) + ".lock"});
  if (is_named_) require_named("run_dir", *run_);
}

void RunDirectories::claim_recordings(const Options& options, const record::RunInfo& run,
                                      UserCallbacks& callbacks) {
  recordings_ = std::make_shared<exporters::RunDirectory>(exporters::RunDirectoryOptions{
      .named = options.recorder_dir,
      .run = run.run,
      .lock_name = exporters::file_word(run.run) + ".rank" + std::to_string(run.rank) + ".lock",
      .has_fallback = false});
  require_named("recorder_dir", *recordings_);
  if (!recordings_->note().empty())
    callbacks.log("recorder_dir: " + recordings_->note() + "; recordings go to " +
                  recordings_->path().string());
}

std::string RunDirectories::text() const {
  const std::string& note = run_->note();
  const std::string path = run_->path().string();
  if (path.empty()) return "none, no files are written (" + note + ")";
  return note.empty() ? path : path + " (" + note + ")";
}

void RunDirectories::remove_old_rings() noexcept try {
  if (run_ != nullptr && !is_named_)
    (void)exporters::remove_old_rings(exporters::temporary_directory(), ::geteuid());
} catch (...) {  // no memory: they stay
}

void RunDirectories::release() noexcept {
  if (run_) run_->release();
  if (recordings_) recordings_->release();
}

}  // namespace gradvane::agent
