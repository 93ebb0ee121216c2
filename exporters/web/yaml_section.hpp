#pragma once
// Config files in YAML, in formats that others have defined: a wrong key is named, with what is allowed there.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradvane::exporters {

[[noreturn]] inline void refuse(const std::string& what) { throw std::runtime_error(what); }

/// One mapping of a file, and where it stands there. All throw std::runtime_error, or what yaml-cpp throws.
class YamlSection {
 public:
  YamlSection(const YAML::Node& node, std::string place) : node_(node), place_(std::move(place)) {
    if (node_ && !node_.IsNull() && !node_.IsMap()) refuse(place_ + " has to be a mapping");
  }

  void allow(std::initializer_list<std::string_view> keys) const {
    if (!node_ || !node_.IsMap()) return;
    std::set<std::string> seen;
    for (const auto& item : node_) {
      const auto key = item.first.as<std::string>();
      if (std::ranges::find(keys, key) == keys.end()) {
        std::string known;
        for (const std::string_view one : keys) known.append(known.empty() ? "" : ", ").append(one);
        refuse(name_of(key) + " is not known; known are " + known);
      }
      if (!seen.insert(key).second) refuse(name_of(key) + " is there twice");
    }
  }

  [[nodiscard]] YAML::Node node(const char* key) const {
    return node_ && node_.IsMap() ? node_[key] : YAML::Node(YAML::NodeType::Undefined);
  }
  [[nodiscard]] YamlSection section(const char* key) const { return {node(key), name_of(key)}; }
  [[nodiscard]] bool has(const char* key) const {
    const YAML::Node found = node(key);
    return found && !found.IsNull();
  }

  /// Empty where it is not there.
  [[nodiscard]] std::string text(const char* key) const {
    if (!has(key)) return {};
    const YAML::Node found = node(key);
    if (!found.IsScalar()) refuse(name_of(key) + " has to be a text");
    return found.Scalar();
  }

  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    const std::string value = text(key);
    if (value.empty()) return otherwise;
    if (value != "true" && value != "false") refuse(name_of(key) + " has to be true or false");
    return value == "true";
  }

  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    if (!has(key)) return all;
    const YAML::Node found = node(key);
    if (!found.IsSequence()) refuse(name_of(key) + " has to be a list");
    for (const auto& item : found) {
      if (!item.IsScalar()) refuse(name_of(key) + " has to be a list of texts");
      all.push_back(item.Scalar());
    }
    return all;
  }

  /// One of a few words.
  template <typename Value, std::size_t kCount>
  [[nodiscard]] Value choice(
      const char* key, Value otherwise,
      const std::array<std::pair<std::string_view, Value>, kCount>& words) const {
    const std::string value = text(key);
    if (value.empty()) return otherwise;
    std::string known;
    for (const auto& [word, meaning] : words) {
      if (value == word) return meaning;
      known.append(known.empty() ? "" : ", ").append(word);
    }
    refuse(name_of(key) + ": '" + value + "' is not allowed; allowed are " + known);
  }

  [[nodiscard]] std::string name_of(std::string_view key) const {
    return place_.empty() ? std::string(key) : place_ + '.' + std::string(key);
  }

 private:
  YAML::Node node_;
  std::string place_;
};

}  // namespace gradvane::exporters
