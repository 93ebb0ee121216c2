#pragma once
// endpoint.rank<R>.json: tells programs on this machine where the run's endpoint is, and how it ended.
#include <filesystem>
#include <string>
#include <string_view>

#include "record/run_info.hpp"

namespace gradvane::exporters {

/// gradvane-<uid>/<run> under the user's temporary directory ($TMPDIR, else /tmp). Characters of `run`
/// that do not suit a file name become `_`.
[[nodiscard]] std::filesystem::path default_run_directory(std::string_view run);

/// Not thread-safe. Nothing throws: each call returns what went wrong, for a person; empty means it
/// went well. The file stays after the process, with state `finished` or `failed` where the run ended.
class EndpointFile {
 public:
  /// @param directory  made with mode 0700 where it is missing; one that belongs to another user is
  ///                   refused, since that user could put anything in its place
  EndpointFile(std::filesystem::path directory, const record::RunInfo& run);

  /// Writes the file as a whole: a reader sees the old one or the new one. A later run of the same name
  /// and rank takes the file over; after that this run leaves it alone.
  [[nodiscard]] std::string write(std::string_view url, record::RunState state) noexcept;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[nodiscard]] std::string write_text(const std::string& text) const;
  [[nodiscard]] bool was_taken_over() const;

  std::filesystem::path directory_;
  std::filesystem::path path_;
  record::RunInfo run_;
  std::string written_;  ///< what we wrote last
};

}  // namespace gradvane::exporters
