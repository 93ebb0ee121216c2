#include "collectors/grouping.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>
#include <utility>

namespace gradvane::collectors {
namespace {

constexpr std::string_view kOther = "other";
constexpr std::string_view kRoot = "(root)";
constexpr int kMaxDepth = 32;

struct NamedRegex {
  std::string name;
  std::regex regex;
};

struct Rule {
  std::optional<int> depth;  ///< absent and no patterns: auto
  std::vector<NamedRegex> patterns;
};

[[noreturn]] void refuse(std::string_view rule, const std::string& why) {
  throw std::invalid_argument("groups: '" + std::string(rule) + "' " + why +
                              "; allowed: auto, depth:N with N >= 1, or name=regex;name=regex");
}

Rule parse(std::string_view rule) {
  Rule parsed;
  if (rule == "auto") return parsed;
  if (rule.starts_with("depth:")) {
    const std::string_view digits = rule.substr(6);
    int depth = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), depth);
    if (error != std::errc{} || end != digits.data() + digits.size() || depth < 1)
      refuse(rule, "has no depth of at least 1");
    parsed.depth = std::min(depth, kMaxDepth);
    return parsed;
  }
  for (std::size_t begin = 0; begin < rule.size();) {
    const std::size_t end = std::min(rule.find(';', begin), rule.size());
    const std::string_view part = rule.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0)
      refuse(rule, "has a part without name=: '" + std::string(part) + "'");
    try {
      parsed.patterns.push_back(
          {std::string(part.substr(0, equals)), std::regex(std::string(part.substr(equals + 1)))});
    } catch (const std::regex_error& error) {
      refuse(rule, "has a bad regex '" + std::string(part) + "': " + error.what());
    }
  }
  if (parsed.patterns.empty()) refuse(rule, "is empty");
  return parsed;
}

std::string prefix(std::string_view param, int depth) {
  const std::size_t last = param.rfind('.');
  if (last == std::string_view::npos) return std::string(kRoot);
  const std::string_view module = param.substr(0, last);
  std::size_t end = 0;
  for (int i = 0; i < depth && end != std::string_view::npos; ++i)
    end = module.find('.', i == 0 ? 0 : end + 1);
  return std::string(module.substr(0, end));
}

int automatic_depth(std::span<const std::string> params, int max_groups) {
  int best = 1;
  std::set<std::string> before;
  for (int depth = 1; depth <= kMaxDepth; ++depth) {
    std::set<std::string> names;
    for (const std::string& param : params) names.insert(prefix(param, depth));
    if (names.size() > static_cast<std::size_t>(max_groups)) break;
    if (names == before) break;  // no name is longer: deeper cuts change nothing
    best = depth;
    before = std::move(names);
  }
  return best;
}

std::string group_name(const Rule& rule, const std::string& param, int depth) {
  if (rule.patterns.empty()) return prefix(param, depth);
  for (const NamedRegex& pattern : rule.patterns)
    if (std::regex_search(param, pattern.regex)) return pattern.name;
  return std::string(kOther);
}

}  // namespace

void check_group_rule(std::string_view rule) { (void)parse(rule); }

Grouping group_parameters(std::span<const std::string> param_names, std::string_view rule,
                          int max_groups) {
  const Rule parsed = parse(rule);
  const int depth = parsed.depth.value_or(automatic_depth(param_names, max_groups));

  std::vector<std::string> wanted;
  std::set<std::string> distinct;
  for (const std::string& param : param_names) {
    wanted.push_back(group_name(parsed, param, depth));
    distinct.insert(wanted.back());
  }
  // One place is kept for "other" when not all names fit.
  const std::size_t room = distinct.size() > static_cast<std::size_t>(max_groups)
                               ? static_cast<std::size_t>(std::max(max_groups - 1, 0))
                               : distinct.size();
  Grouping grouping;
  std::map<std::string, std::int32_t> index;
  for (std::string& name : wanted) {
    auto found = index.find(name);
    if (found == index.end()) {
      if (name != kOther && index.size() - index.count(std::string(kOther)) >= room) {
        name = std::string(kOther);
        found = index.find(name);
      }
      if (found == index.end()) {
        found = index.emplace(name, static_cast<std::int32_t>(grouping.names.size())).first;
        grouping.names.push_back(name);
      }
    }
    grouping.group_of.push_back(found->second);
  }
  return grouping;
}

}  // namespace gradvane::collectors
