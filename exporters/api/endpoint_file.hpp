#pragma once
// endpoint.rank<R>.json: tells programs on this machine where the run's endpoint is, and how it ended.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "exporters/files/run_directory.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::exporters {

/// Not thread-safe. Nothing throws: each call returns what went wrong, for a person; empty means it
/// went well. The file stays after the process, with state `finished` or `failed` where the run ended.
class EndpointFile {
 public:
  /// @param node_url  of the port that all ranks of this node have; empty: there is none
  /// @param token     that the endpoint asks for; empty: none
  /// @param socket    name in the run directory of the unix socket on which this rank answers; empty: none
  EndpointFile(std::shared_ptr<RunDirectory> directory, const record::RunInfo& run,
               std::string node_url = {}, std::string token = {}, std::string socket = {});

  /// Writes the file as a whole, mode 0600: a reader sees the old one or the new one. A later run of the same
  /// name and rank takes the file over; after that this run leaves it alone.
  [[nodiscard]] std::string write(std::string_view url, record::RunState state) noexcept;

  /// Where it was written last, or will be.
  [[nodiscard]] std::filesystem::path path() const { return directory_->path() / name_; }

 private:
  [[nodiscard]] bool was_taken_over(int directory) const;

  std::shared_ptr<RunDirectory> directory_;
  std::string name_;
  record::RunInfo run_;
  std::string node_url_;
  std::string token_;
  std::string socket_;
  std::string written_;  ///< what we wrote last
};

}  // namespace gradvane::exporters
