#include "exporters/alert_push/alert.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace gradvane::exporters {
namespace {

/// Where a person who has no endpoint to open finds the runbooks: in the checkout and the package.
constexpr std::string_view kRunbookFiles = "docs/runbooks";
constexpr double kLastSecond = 253402300799.0;  // of the year 9999

std::string runbook_url(const record::AlertRule& rule, const AlertWords& words) {
  const std::string name = runbook_of(rule);
  if (!words.runbook_base.empty()) return words.runbook_base + '/' + name + ".md";
  if (words.generator_url.empty()) return std::string(kRunbookFiles) + '/' + name + ".md";
  return words.generator_url + (words.generator_url.ends_with('/') ? "" : "/") + "runbooks/" + name;
}

nlohmann::json json_of(const Alert& alert, const AlertWords& words) {
  nlohmann::json labels = words.labels;
  labels["alertname"] = alert.rule->name;
  labels["severity"] = name_of(alert.rule->severity);
  labels["component"] = record::kAlertComponent;
  labels["run"] = words.run;
  nlohmann::json value{{"labels", std::move(labels)},
                       {"annotations",
                        {{"summary", alert.rule->summary},
                         {"description", alert.description},
                         {"runbook_url", runbook_url(*alert.rule, words)}}},
                       {"startsAt", rfc3339(alert.starts_at)},
                       // One that ends before it starts is refused, and clocks can be set back.
                       {"endsAt", rfc3339(std::max(alert.starts_at, alert.ends_at))}};
  if (!words.generator_url.empty()) value["generatorURL"] = words.generator_url;
  return value;
}

}  // namespace

std::string alerts_json(std::span<const Alert> alerts, const AlertWords& words) {
  nlohmann::json body = nlohmann::json::array();
  for (const Alert& alert : alerts) body.push_back(json_of(alert, words));
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string rfc3339(double seconds) {
  if (!(seconds >= 1)) seconds = 1;  // second 0 with no fraction is "not given" to some readers
  seconds = std::min(seconds, kLastSecond);
  const auto milliseconds = static_cast<std::int64_t>(std::floor(seconds * 1000));
  const std::time_t whole = milliseconds / 1000;
  std::tm parts{};
  gmtime_r(&whole, &parts);
  std::array<char, 32> date{};
  (void)std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 48> text{};
  (void)std::snprintf(text.data(), text.size(), "%s.%03dZ", date.data(),
                      static_cast<int>(milliseconds % 1000));
  return text.data();
}

}  // namespace gradvane::exporters
