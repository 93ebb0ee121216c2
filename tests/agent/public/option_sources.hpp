#pragma once
// Where options come from, in tests: an environment, a YAML file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "record/run/launchers.hpp"

namespace gradvane::agent::test {

using Variables = std::map<std::string, std::string>;

inline record::Environment with(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

/// A YAML file that goes with the test.
class YamlFile {
 public:
  explicit YamlFile(const std::string& text) {
    static int number = 0;
    path_ = std::filesystem::path(testing::TempDir()) /
            ("gradvane_options_test." + std::to_string(::getpid()) + "." +
             std::to_string(++number) + ".yaml");
    std::ofstream(path_) << text;
  }
  ~YamlFile() { std::filesystem::remove(path_); }
  YamlFile(const YamlFile&) = delete;  // owns the file
  YamlFile& operator=(const YamlFile&) = delete;
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace gradvane::agent::test
