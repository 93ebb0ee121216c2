// The page's script writes the same: dashboards/page/test/same_text_test.ts has the same cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "exporters/page/incident_words.hpp"
#include "exporters/page/page_number.hpp"
#include "exporters/page/state_sentence.hpp"
#include "exporters/text/human_text.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {
namespace {

using nlohmann::json;
using record::Incident;

const json& cases() {
  static const json kAll = [] {
    const char* source = std::getenv("GRADVANE_SOURCE_DIR");
    EXPECT_NE(source, nullptr);
    return json::parse(std::ifstream(std::filesystem::path(source != nullptr ? source : ".") /
                                     "dashboards/page/test/same_text.json"));
  }();
  return kAll;
}

std::string text_of(const json& text) { return text.get<std::string>(); }

/// By its name in the API; fails the test if there is no such name.
template <typename Enum>
Enum value_of(const json& name) {
  const auto found = record::named<Enum>(name.get<std::string>());
  EXPECT_TRUE(found) << name;
  return found.value_or(Enum{});
}

std::optional<double> number_of(const json& value) {
  if (value.is_null()) return std::nullopt;
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return value.get<double>();
}

Incident incident_of(const std::string& name) {
  const json& about = cases()["incidents"].at(name);
  Incident incident;
  incident.id = about["id"];
  incident.kind = value_of<record::IncidentClass>(about["class"]);
  incident.first_step = about["first_step"];
  incident.last_step = about["last_step"];
  incident.steps = about["steps"];
  incident.param = about.value("param", "");
  incident.group = about.value("group", "");
  if (about.contains("closed_at")) incident.closed_at = about["closed_at"];
  if (about.contains("site")) {
    incident.first = record::FirstNonfinite{.site = value_of<record::Site>(about["site"]),
                                            .kind = value_of<record::NonfiniteKind>(about["kind"])};
  }
  return incident;
}

Status status_of(const json& about) {
  Status status;
  status.state = value_of<record::RunState>(about["state"]);
  status.reason = about.value("reason", "");
  status.recording = about.value("recording", "");
  status.latest.emplace();
  status.latest->run_step = 600;
  for (const std::string name : about.value("incidents", json::array())) {
    status.incidents.push_back(incident_of(name));
  }
  status.incidents_total = std::ssize(status.incidents);
  if (about.contains("bad")) {
    const auto site = value_of<record::Site>(about["bad"]);
    status.latest->nonfinite[static_cast<std::size_t>(site)] = {0, 1, 0};
  }
  if (about.contains("first")) {
    const json& first = about["first"];
    FirstBad bad;
    bad.what.run_step = first["run_step"];
    bad.what.site = value_of<record::Site>(first["site"]);
    if (first.contains("kind")) {
      bad.what.kind = value_of<record::NonfiniteKind>(first["kind"]);
    }
    bad.param = first.value("param", "");
    status.first_bad = bad;
  }
  return status;
}

TEST(SameText, OfNumbersCountsAgesAndTimes) {
  for (const json& one : cases()["numbers"])
    EXPECT_EQ(page_number(number_of(one[0])), text_of(one[1]));
  for (const json& one : cases()["counts"]) EXPECT_EQ(human_count(one[0]), text_of(one[1]));
  for (const json& one : cases()["plurals"])
    EXPECT_EQ(page_plural(one[0], "step"), text_of(one[1]));
  for (const json& one : cases()["ages"]) EXPECT_EQ(page_age(one[0]), text_of(one[1]));
  for (const json& one : cases()["times"])
    EXPECT_EQ(human_time(*number_of(one[0])), text_of(one[1]));
}

TEST(SameText, OfIncidents) {
  EXPECT_EQ(cases()["incident_classes"].size(), std::size_t{record::kIncidentClasses});
  for (int i = 0; i < record::kIncidentClasses; ++i) {
    Incident incident;
    incident.kind = static_cast<record::IncidentClass>(i);
    const std::string name(name_of(incident.kind));
    EXPECT_EQ(class_words(incident.kind), text_of(cases()["incident_classes"].at(name)));
    EXPECT_EQ(is_mild(incident), std::ranges::count(cases()["mild"], json(name)) == 1) << name;
  }
  for (const json& one : cases()["since"])
    EXPECT_EQ(since_words(incident_of(one[0])), text_of(one[1]));
  for (const json& one : cases()["steps"])
    EXPECT_EQ(steps_words(incident_of(one[0])), text_of(one[1]));
}

TEST(SameText, OfTheOrderOfIncidents) {
  const auto ids = [](const std::vector<Incident>& incidents) {
    std::vector<std::int64_t> all;
    for (const Incident& incident : incidents) all.push_back(incident.id);
    return all;
  };
  for (const json& one : cases()["orders"]) {
    std::vector<Incident> before;
    std::vector<Incident> after;
    for (const std::string name : one[0]) before.push_back(incident_of(name));
    for (const std::string name : one[1]) after.push_back(incident_of(name));
    EXPECT_EQ(ids(open_first(before)), ids(after));
  }
}

TEST(SameText, OfTheStateInOneSentence) {
  for (const json& one : cases()["sentences"]) {
    const Status status = status_of(one[0]);
    const StateSentence sentence = state_sentence(status, &status);
    EXPECT_EQ(sentence.text, text_of(one[2])) << one[0];
    EXPECT_EQ(sentence.tone, text_of(one[1])) << one[0];
  }
}

}  // namespace
}  // namespace gradvane::exporters
