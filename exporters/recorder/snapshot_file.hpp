#pragma once
// Files of their own for what went wrong: whole from the moment they have their name, and few.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/files/run_directory.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters::recording {

/// The recordings of one rank of one run in one directory, mode 0600. Nothing throws. Not thread-safe.
class SnapshotFiles {
 public:
  /// @param kept  most files; those of earlier processes of the same run and rank count too. They have ended:
  ///              `directory` is claimed by one process at a time.
  SnapshotFiles(std::shared_ptr<RunDirectory> directory, std::string_view run, int rank, int kept);

  /// A new file, and the oldest ones go: all but the first that this process wrote, which says how it began.
  /// Returns its name, which is empty where it could not be written; errno says why.
  std::string write(std::int64_t run_step, std::string_view word, Parts parts) noexcept;
  /// More frames for a file. A part that could not be written is cut off again.
  bool append(const std::string& name, Parts parts) noexcept;

  /// What every file of this rank begins with.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

 private:
  std::string free_name(int directory, std::int64_t run_step, std::string_view word) const;
  void remove_oldest(int directory) noexcept;

  std::shared_ptr<RunDirectory> directory_;
  std::string prefix_;
  std::size_t kept_;
  std::vector<std::string> written_;  ///< by this process and still there, in the order of writing
};

}  // namespace gradvane::exporters::recording
