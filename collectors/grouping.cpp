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
constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMostBelowLayers = 50;  // groups, where layers are split further

struct NamedRegex {
  std::string name;
  std::regex regex;
};

struct Rule {
  std::optional<std::size_t> depth;  ///< absent and no patterns: auto
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
    parsed.depth = std::min<std::size_t>(static_cast<std::size_t>(depth), kMaxDepth);
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

/// The names between the dots of the module that `param` is in; none for the root module.
std::vector<std::string> module_of(std::string_view param) {
  std::vector<std::string> parts;
  const std::size_t last = param.rfind('.');
  if (last == std::string_view::npos) return parts;
  const std::string_view module = param.substr(0, last);
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    parts.emplace_back(module.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_number(std::string_view part) {
  return !part.empty() && part.size() <= 9 &&
         std::ranges::all_of(part, [](char letter) { return letter >= '0' && letter <= '9'; });
}

std::string joined(std::span<const std::string> parts) {
  std::string text;
  for (const std::string& part : parts) (text += text.empty() ? "" : ".") += part;
  return text;
}

/// One parameter's module, and the part of it that names its group.
struct Cut {
  std::vector<std::string> parts;
  std::size_t layer = 0;  ///< parts up to the layer's number, that one included; 0: there is none
  std::size_t depth = 0;  ///< parts that name the group
};

using Cuts = std::vector<Cut>;

/// The numbers that follow a module's name, by that name.
using Numbers = std::map<std::string, std::set<std::string>>;

Numbers numbers_of(const Cuts& cuts) {
  Numbers numbers;
  for (const Cut& cut : cuts)
    for (std::size_t i = 0; i < cut.parts.size(); ++i)
      if (is_number(cut.parts[i]))
        numbers[joined(std::span(cut.parts).first(i))].insert(cut.parts[i]);
  return numbers;
}

/// Whether the number at `at` only says which list of layers: that of a Sequential which holds a list with more layers than
/// it has members itself (1.0, 1.1, ...), or the only one that names begin with (0.decoder.layers.0). Not if experts
/// or heads are numbered below layers.
bool is_list_of_layers(const Cut& cut, std::size_t at, const Numbers& numbers) {
  const auto among = [&](std::size_t i) {
    return numbers.at(joined(std::span(cut.parts).first(i))).size();
  };
  const bool is_followed = at + 1 < cut.parts.size() && is_number(cut.parts[at + 1]);
  if (is_followed) return among(at + 1) > among(at);
  return at == 0 && among(at) == 1 &&
         std::any_of(cut.parts.begin() + 1, cut.parts.end(), is_number);
}

Cuts cuts_of(std::span<const std::string> params) {
  Cuts cuts;
  for (const std::string& param : params) cuts.push_back({.parts = module_of(param)});
  const Numbers numbers = numbers_of(cuts);
  std::set<std::string> holders;  // of lists of layers: their other members are no layers
  for (Cut& cut : cuts) {
    const auto first = std::ranges::find_if(cut.parts, is_number);
    if (first == cut.parts.end()) continue;
    const auto at = static_cast<std::size_t>(first - cut.parts.begin());
    cut.layer = at + 1;
    if (!is_list_of_layers(cut, at, numbers)) continue;
    holders.insert(joined(std::span(cut.parts).first(at)));
    const auto second = std::find_if(first + 1, cut.parts.end(), is_number);
    cut.layer = static_cast<std::size_t>(second - cut.parts.begin()) + 1;
  }
  for (Cut& cut : cuts)
    if (cut.layer > 0 && holders.contains(joined(std::span(cut.parts).first(cut.layer - 1))))
      cut.layer = 0;
  return cuts;
}

/// Cuts layers `deeper` parts below their number, and everything else after `others` parts.
void cut_all(Cuts& cuts, std::size_t deeper, std::size_t others) {
  for (Cut& cut : cuts)
    cut.depth = std::min(cut.layer > 0 ? cut.layer + deeper : others, cut.parts.size());
}

std::span<const std::string> group_parts(const Cut& cut) {
  return std::span(cut.parts).first(cut.depth);
}

std::size_t count_groups(const Cuts& cuts) {
  std::set<std::vector<std::string>> names;
  for (const Cut& cut : cuts) {
    const auto parts = group_parts(cut);
    names.emplace(parts.begin(), parts.end());
  }
  return names.size();
}

/// Leaves `cuts` at the greatest depth that gives at most `limit` groups; at the least if none does.
void cut_deep(Cuts& cuts, std::size_t limit, const auto& cut_at) {
  std::size_t longest = 0;
  for (const Cut& cut : cuts) longest = std::max(longest, cut.parts.size());
  cut_at(0);
  for (std::size_t depth = 1; depth < std::min(longest, kMaxDepth); ++depth) {
    cut_at(depth);
    if (count_groups(cuts) > limit) return cut_at(depth - 1);
  }
}

/// The layers of each module that has some: their numbers, by the module's name.
using Layers = std::map<std::string, std::set<int>>;

Layers layers_of(const Cuts& cuts) {
  Layers layers;
  for (const Cut& cut : cuts)
    if (cut.layer > 0)
      layers[joined(std::span(cut.parts).first(cut.layer - 1))].insert(
          std::stoi(cut.parts[cut.layer - 1]));
  return layers;
}

/// The smallest number of neighbouring layers to a group with which there are at most `room` groups of layers;
/// all layers of a module in one group where none is small enough.
std::size_t layers_in_group(const Layers& layers, std::size_t room) {
  std::size_t longest = 1;
  for (const auto& [module, numbers] : layers) longest = std::max(longest, numbers.size());
  for (std::size_t size = 1; size < longest; ++size) {
    std::size_t groups = 0;
    for (const auto& [module, numbers] : layers) groups += (numbers.size() + size - 1) / size;
    if (groups <= room) return size;
  }
  return longest;
}

/// Joins neighbouring layers, `size` at a time: layers.0 and layers.1 become layers.0-1.
void join_layers(Cuts& cuts, const Layers& layers, std::size_t size) {
  std::map<std::string, std::map<int, std::string>> names;
  for (const auto& [module, numbers] : layers) {
    const std::vector<int> all(numbers.begin(), numbers.end());
    const std::size_t width = std::to_string(all.back()).size();
    const auto padded = [&](int number) {
      const std::string digits = std::to_string(number);
      return std::string(width - digits.size(), '0') + digits;
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t first = i - i % size;
      const std::size_t last = std::min(first + size, all.size()) - 1;
      names[module][all[i]] =
          first == last ? padded(all[first]) : padded(all[first]) + "-" + padded(all[last]);
    }
  }
  for (Cut& cut : cuts) {
    if (cut.layer == 0) continue;
    std::string& number = cut.parts[cut.layer - 1];
    number = names[joined(std::span(cut.parts).first(cut.layer - 1))][std::stoi(number)];
  }
}

/// Numbers get leading zeros, as many as the longest beside them needs: names then sort as layers follow.
void pad_numbers(Cuts& cuts) {
  std::map<std::string, std::size_t> widths;  // of the numbers below a module
  for (const Cut& cut : cuts) {
    const auto parts = group_parts(cut);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!is_number(parts[i])) continue;
      std::size_t& width = widths[joined(parts.first(i))];
      width = std::max(width, parts[i].size());
    }
  }
  for (Cut& cut : cuts) {
    const std::vector<std::string> plain = cut.parts;
    for (std::size_t i = 0; i < cut.depth; ++i)
      if (is_number(plain[i]))
        cut.parts[i].insert(0, widths[joined(std::span(plain).first(i))] - plain[i].size(), '0');
  }
}

std::string note_on(std::size_t layers, std::size_t size, int max_groups) {
  return std::to_string(layers) + " layers are shown in groups of " + std::to_string(size) +
         ", because max_groups is " + std::to_string(max_groups);
}

/// The rule "auto". Returns what is to be said of it, or nothing.
std::string cut_automatically(Cuts& cuts, int max_groups) {
  const auto most = static_cast<std::size_t>(max_groups);
  const std::size_t most_below_layers = std::min(most, kMostBelowLayers);
  std::size_t others = 0;
  for (const Cut& cut : cuts) others = std::max(others, cut.layer);
  if (others == 0) {
    cut_deep(cuts, most_below_layers, [&](std::size_t depth) { cut_all(cuts, 0, depth + 1); });
    return {};
  }
  cut_deep(cuts, most_below_layers,
           [&](std::size_t depth) { cut_all(cuts, depth, others + depth); });
  for (std::size_t depth = others; count_groups(cuts) > most && depth > 1;)
    cut_all(cuts, 0, --depth);  // what is no layer may be cut shorter
  if (count_groups(cuts) <= most) return {};
  cut_all(cuts, 0, others);
  const std::size_t groups = count_groups(cuts);
  const Layers layers = layers_of(cuts);
  std::size_t in_layers = 0;
  for (const auto& [module, numbers] : layers) in_layers += numbers.size();
  const std::size_t rest = groups - in_layers;
  const std::size_t size = layers_in_group(layers, most > rest ? most - rest : 0);
  join_layers(cuts, layers, size);
  return note_on(in_layers, size, max_groups);
}

std::string pattern_of(const Rule& rule, const std::string& param) {
  for (const NamedRegex& pattern : rule.patterns)
    if (std::regex_search(param, pattern.regex)) return pattern.name;
  return std::string(kOther);
}

/// The name of each parameter's group, before there are too many; and the note.
std::vector<std::string> names_by(const Rule& rule, std::span<const std::string> params,
                                  int max_groups, std::string& note) {
  std::vector<std::string> names;
  if (!rule.patterns.empty()) {
    for (const std::string& param : params) names.push_back(pattern_of(rule, param));
    return names;
  }
  Cuts cuts = cuts_of(params);
  if (rule.depth) {
    for (Cut& cut : cuts) cut.depth = std::min(*rule.depth, cut.parts.size());
  } else {
    note = cut_automatically(cuts, max_groups);
  }
  pad_numbers(cuts);
  for (const Cut& cut : cuts)
    names.push_back(cut.depth == 0 ? std::string(kRoot) : joined(group_parts(cut)));
  return names;
}

}  // namespace

void check_group_rule(std::string_view rule) { (void)parse(rule); }

Grouping group_parameters(std::span<const std::string> param_names, std::string_view rule,
                          int max_groups) {
  Grouping grouping;
  std::vector<std::string> wanted = names_by(parse(rule), param_names, max_groups, grouping.note);
  const std::set<std::string> distinct(wanted.begin(), wanted.end());
  // One place is kept for "other" when not all names fit.
  const std::size_t room = distinct.size() > static_cast<std::size_t>(max_groups)
                               ? static_cast<std::size_t>(std::max(max_groups - 1, 0))
                               : distinct.size();
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
