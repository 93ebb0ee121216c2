#pragma once
// Files of their own for what went wrong: whole from the moment they have their name, and few.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace gradvane::exporters::recording {

/// What is written in one go without being put together first.
using Parts = std::span<const std::string_view>;

/// The recordings of one rank of one run in one directory. Nothing throws. Not thread-safe.
class SnapshotFiles {
 public:
  /// @param kept  most files; those of earlier processes of the same run and rank count too
  SnapshotFiles(std::filesystem::path directory, std::string_view run, int rank, int kept);

  /// A new file, and the oldest ones go: all but the first that this process wrote, which says how it began.
  /// Returns its path, which is empty where it could not be written; errno says why.
  std::filesystem::path write(std::int64_t run_step, std::string_view word, Parts parts) noexcept;
  /// More frames for a file. A part that could not be written is cut off again.
  static bool append(const std::filesystem::path& path, Parts parts) noexcept;

  /// What every file of this rank begins with.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }

 private:
  std::filesystem::path free_name(std::int64_t run_step, std::string_view word) const;
  void remove_oldest(const std::filesystem::path& newest) noexcept;

  std::filesystem::path directory_;
  std::string prefix_;
  std::size_t kept_;
  std::filesystem::path first_;
};

/// Makes a directory and those above it, for nobody else to look into. False where it is not there afterwards.
bool make_directories(const std::filesystem::path& directory) noexcept;

}  // namespace gradvane::exporters::recording
