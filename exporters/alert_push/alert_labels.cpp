#include "exporters/alert_push/alert_labels.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace gradvane::exporters {
namespace {

constexpr std::array<std::string_view, 4> kOwn{"alertname", "severity", "component", "run"};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw std::invalid_argument("label '" + name + "' of pushed alerts: " + why);
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_label_name(std::string_view name) {
  return !name.empty() && !is_digit(name.front()) &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
}

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();  // its strict way throws
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

}  // namespace

void check_alert_labels(const AlertLabels& labels) {
  for (const auto& [name, value] : labels) {
    if (!is_label_name(name))
      refuse(name, "letters, digits and underscores, and no digit at the beginning");
    if (name.starts_with("__")) refuse(name, "two underscores begin Prometheus' own labels");
    if (std::ranges::find(kOwn, name) != kOwn.end()) refuse(name, "every alert has its own");
    if (value.empty()) refuse(name, "an empty value is no label; leave it out");
    if (!is_utf8(value)) refuse(name, "the value is not UTF-8");
  }
}

AlertLabels parse_alert_labels(std::string_view text) {
  AlertLabels labels;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string label(text.substr(0, comma));
    const auto equals = label.find('=');
    if (equals == std::string::npos) refuse(label, "is not name=value");
    if (!labels.emplace(label.substr(0, equals), label.substr(equals + 1)).second)
      refuse(label, "is there twice");
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) refuse("", "nothing follows the last comma");
  }
  check_alert_labels(labels);
  return labels;
}

}  // namespace gradvane::exporters
