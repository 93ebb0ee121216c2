// The difference as a person and as a program reads it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "exporters/json/record_json.hpp"
#include "exporters/replay/diff.hpp"
#include "exporters/replay/report_text.hpp"
#include "exporters/text/human_text.hpp"
#include "exporters/text/number_text.hpp"

namespace gradvane::exporters::recording {

using Json = nlohmann::ordered_json;
using exporters::to_json;

namespace {

constexpr std::size_t kMostNames = 10;

/// Whose is whose stands with the values: a line is read alone, or copied into a ticket.
std::string both(const std::string& a, const std::string& b) { return "A " + a + ", B " + b; }

/// Every digit: they differ in the last one, perhaps.
std::string exact(const std::optional<double>& value) {
  if (!value) return "not measured";
  std::string text;
  append_number(text, *value);
  return text;
}

void names(std::string& text, const std::string& heading, const std::vector<std::string>& all) {
  if (all.empty()) return;
  line(text, heading + " (" + human_count(std::ssize(all)) + "):");
  for (std::size_t i = 0; i < std::min(all.size(), kMostNames); ++i)
    line(text, "  " + plain(all[i]));
  if (all.size() > kMostNames) line(text, "  and more");
}

void settings(std::string& text, const Diff& diff) {
  text += "\nSettings and models\n";
  for (const SettingDifference& one : diff.settings)
    line(text,
         plain(one.key) + ": " +
             both(plain(one.a.value_or("(not there)")), plain(one.b.value_or("(not there)"))));
  names(text, "parameters only in A", diff.params_only_in_a);
  names(text, "parameters only in B", diff.params_only_in_b);
  names(text, "parameters that are not alike", diff.params_changed);
  const bool differ = !diff.settings.empty() || !diff.params_only_in_a.empty() ||
                      !diff.params_only_in_b.empty() || !diff.params_changed.empty();
  if (!differ) line(text, "the same");
}

void parting(std::string& text, const Diff& diff) {
  text += "\nWhere they part\n";
  if (diff.common_steps == 0) return line(text, "They have no step in common.");
  const auto tell = [&](const std::string& how, const std::optional<Difference>& first) {
    if (!first) return line(text, how + ": nowhere");
    line(text, how + ": step " + human_count(first->run_step) + ", " + first->what);
    line(text, "  A " + exact(first->a));  // one above the other: which digit differs can be seen
    line(text, "  B " + exact(first->b));
  };
  line(text, human_count(diff.common_steps) + " steps in common, " +
                 human_count(diff.first_common) + " to " + human_count(diff.last_common));
  if (diff.first_rate) tell("first different setting of the optimizer", diff.first_rate);
  tell("first different bit", diff.first_bits);
  tell("first beyond " + human_number(diff.tolerance) + " of its size", diff.first_beyond);
}

void ratios(std::string& text, const char* heading, const std::vector<RatioDifference>& all) {
  if (all.empty()) return;
  line(text, heading);
  for (const RatioDifference& one : all) {
    std::string words = "  " + plain(one.name) + ": " + one.what + " " +
                        both(human_number(one.a), human_number(one.b));
    if (one.a > 0 && one.b > 0) words += ", " + human_number(one.b / one.a) + " times A";
    line(text, words);
  }
}

Json optional_json(const std::optional<double>& value) { return value ? to_json(*value) : Json(); }

Json difference_json(const Difference& one) {
  return {{"run_step", one.run_step},
          {"what", one.what},
          {"a", optional_json(one.a)},
          {"b", optional_json(one.b)}};
}

Json ratios_json(const std::vector<RatioDifference>& all) {
  Json json = Json::array();
  for (const RatioDifference& one : all)
    json.push_back({{"name", one.name},
                    {"what", one.what},
                    {"a", to_json(one.a)},
                    {"b", to_json(one.b)},
                    {"log_ratio", to_json(one.log_ratio)}});
  return json;
}

}  // namespace

std::string text_of(const Diff& diff) {
  std::string text = "A: " + plain(diff.a) + "\nB: " + plain(diff.b) + "\n";
  settings(text, diff);
  parting(text, diff);
  if (diff.moment_a && diff.moment_b) {
    text += "\nGroups and parameters, A at step " + human_count(*diff.moment_a) + ", B at step " +
            human_count(*diff.moment_b) + ", farthest apart first\n";
    ratios(text, "groups", diff.groups);
    ratios(text, "parameters", diff.params);
    if (diff.groups.empty() && diff.params.empty())
      line(text, diff.has_nonfinite
                     ? "no number of them differs; norms of what is not finite are not compared"
                     : "no number of them differs");
  }
  if (!diff.problem.empty()) text += "\nNot compared: " + plain(diff.problem) + "\n";
  return text;
}

Json to_json(const Diff& diff) {
  Json json{{"a", diff.a}, {"b", diff.b}};
  json["settings"] = Json::array();
  for (const SettingDifference& one : diff.settings) {
    Json setting{{"key", one.key}};
    if (one.a) setting["a"] = *one.a;
    if (one.b) setting["b"] = *one.b;
    json["settings"].push_back(std::move(setting));
  }
  json["params_only_in_a"] = diff.params_only_in_a;
  json["params_only_in_b"] = diff.params_only_in_b;
  json["params_changed"] = diff.params_changed;
  json["common_steps"] = {{"count", diff.common_steps}};
  if (diff.common_steps > 0) {
    json["common_steps"]["first"] = diff.first_common;
    json["common_steps"]["last"] = diff.last_common;
  }
  json["tolerance"] = diff.tolerance;
  if (diff.first_rate) json["first_different_rate"] = difference_json(*diff.first_rate);
  if (diff.first_bits) json["first_different_bit"] = difference_json(*diff.first_bits);
  if (diff.first_beyond) json["first_beyond_tolerance"] = difference_json(*diff.first_beyond);
  if (diff.moment_a) json["moment"] = {{"a", *diff.moment_a}, {"b", *diff.moment_b}};
  json["groups"] = ratios_json(diff.groups);
  json["params"] = ratios_json(diff.params);
  if (!diff.problem.empty()) json["problem"] = diff.problem;
  return json;
}

}  // namespace gradvane::exporters::recording
