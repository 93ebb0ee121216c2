#include "exporters/user_families.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <unordered_set>

namespace gradvane::exporters {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

bool is_name(std::string_view text, bool colon_allowed) {
  const auto legal = [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 128 && (std::isalnum(byte) != 0 || c == '_' || (colon_allowed && c == ':'));
  };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::ranges::all_of(text, legal);
}

/// Every name that a reader of either format may see for this family. OpenMetrics gives a counter
/// `x_total` the family name `x`, and keeps the derived names of summaries and histograms for them.
std::vector<std::string> names_taken(const MetricFamily& family) {
  std::vector<std::string> names{family.name};
  const auto ends_with = [&](std::string_view end) { return family.name.ends_with(end); };
  if (family.type == MetricType::Counter && ends_with("_total")) {
    names.push_back(family.name.substr(0, family.name.size() - 6));
  }
  if (family.type == MetricType::Gauge && ends_with("_info")) {
    names.push_back(family.name.substr(0, family.name.size() - 5));
  }
  if (family.type == MetricType::Histogram || family.type == MetricType::Summary) {
    names.push_back(family.name + "_count");
    names.push_back(family.name + "_sum");
  }
  if (family.type == MetricType::Histogram) names.push_back(family.name + "_bucket");
  return names;
}

bool has_label(const ClientMetric& series, std::string_view name) {
  return std::ranges::any_of(series.label, [&](const auto& label) { return label.name == name; });
}

bool labels_are_legal(const ClientMetric& series, MetricType type) {
  std::set<std::string_view> seen;
  for (const auto& label : series.label) {
    if (!is_name(label.name, false) || label.name.starts_with("__")) return false;
    if (!seen.insert(label.name).second) return false;
    if (type == MetricType::Histogram && label.name == "le") return false;
    if (type == MetricType::Summary && label.name == "quantile") return false;
  }
  return true;
}

bool series_are_legal(MetricFamily& family, const FixedLabels& fixed) {
  std::set<std::vector<ClientMetric::Label>> seen;
  for (ClientMetric& series : family.metric) {
    for (const auto& [name, value] : fixed) {
      if (!has_label(series, name)) series.label.push_back({name, value});
    }
    if (!labels_are_legal(series, family.type)) return false;
    auto labels = series.label;
    std::ranges::sort(labels, [](const auto& a, const auto& b) { return a < b; });
    if (!seen.insert(std::move(labels)).second) return false;
  }
  return true;
}

}  // namespace

std::size_t append_user_families(std::vector<MetricFamily>& families,
                                 std::vector<MetricFamily> theirs, const FixedLabels& fixed) {
  std::unordered_set<std::string> taken;
  for (const MetricFamily& family : families) {
    for (std::string& name : names_taken(family)) taken.insert(std::move(name));
  }
  std::size_t left_out = 0;
  for (MetricFamily& family : theirs) {
    if (family.metric.empty()) continue;
    const auto names = names_taken(family);
    const bool is_free =
        std::ranges::none_of(names, [&](const auto& name) { return taken.contains(name); });
    if (!is_free || !is_name(family.name, true) || !series_are_legal(family, fixed)) {
      ++left_out;
      continue;
    }
    taken.insert(names.begin(), names.end());
    families.push_back(std::move(family));
  }
  return left_out;
}

}  // namespace gradvane::exporters
