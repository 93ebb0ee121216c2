#pragma once
// The files that a config consists of: its own, and those that it names.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "exporters/files/file_stamp.hpp"
#include "exporters/web/yaml_section.hpp"

namespace gradvane::exporters {

/// Each with its stamp from before it was read.
using StampedFiles = std::vector<std::pair<std::filesystem::path, FileStamp>>;

class ConfigFiles {
 public:
  /// @param folder  where names that are not absolute begin
  explicit ConfigFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Of at most 1 MiB. Throws std::runtime_error.
  [[nodiscard]] std::string text_of(const std::filesystem::path& name);
  /// What stands in the config itself, under `key`, or in the file that `file_key` names. Empty if both are absent.
  [[nodiscard]] std::string text_of(const YamlSection& section, const char* key,
                                    const char* file_key);

  [[nodiscard]] const StampedFiles& all() const noexcept { return all_; }

 private:
  std::filesystem::path folder_;
  StampedFiles all_;
};

}  // namespace gradvane::exporters
