#pragma once
// The directories that a process writes files of its run to: the run directory, and one of the
// user's for recordings.
#include <memory>
#include <string>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "exporters/files/run_directory.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::agent {

/// Threading: built on the thread of the set-up, then the worker's.
class RunDirectories {
 public:
  /// Claims the directories that files go to. Throws std::runtime_error if one that the user named
  /// cannot be used as it is named.
  RunDirectories(const Options& options, const record::RunInfo& run, UserCallbacks& callbacks);

  /// With the endpoint file and, unless the user named another place, the recordings. Null if no
  /// file goes there.
  [[nodiscard]] const std::shared_ptr<exporters::RunDirectory>& run() const noexcept {
    return run_;
  }
  /// Null if there is no recorder.
  [[nodiscard]] const std::shared_ptr<exporters::RunDirectory>& recordings() const noexcept {
    return recordings_;
  }
  /// The run directory and what is to note about it, for a person. Precondition: there is one.
  [[nodiscard]] std::string text() const;

  /// Removes rings that killed runs left in the temporary directory. Looks at the disk.
  void remove_old_rings() noexcept;
  /// Gives the directories up to a later run.
  void release() noexcept;

 private:
  void claim_run_directory(const Options& options, const record::RunInfo& run);
  void claim_recordings(const Options& options, const record::RunInfo& run,
                        UserCallbacks& callbacks);

  bool is_named_;  ///< the run directory, by the user
  std::shared_ptr<exporters::RunDirectory> run_;
  std::shared_ptr<exporters::RunDirectory> recordings_;
};

}  // namespace gradvane::agent
