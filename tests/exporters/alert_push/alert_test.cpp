#include "exporters/alert_push/alert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace gradvane::exporters {
namespace {

using nlohmann::json;

AlertWords some_words() {
  return {
      .run = "run-1", .rank = 3, .labels = {{"job", "training"}}, .runbook_base = "http://wiki/r"};
}

Alert some_alert() {
  return {.rule = record::alert_rule("GradvaneTrainingNonFinite"),
          .starts_at = 1763697310.25,
          .ends_at = 1763697550.25,
          .description = "what happened"};
}

json parsed(const std::vector<Alert>& alerts, const AlertWords& words) {
  return json::parse(alerts_json(alerts, words));
}

TEST(Alert, IsWrittenAsAlertmanagerReadsIt) {
  EXPECT_EQ(parsed({some_alert()}, some_words()), json::parse(R"([{
    "labels": {"alertname": "GradvaneTrainingNonFinite", "severity": "critical",
               "component": "gradvane", "run": "run-1", "job": "training"},
    "annotations": {"summary": "NaN or infinity in gradients or weights",
                    "description": "what happened",
                    "runbook_url": "http://wiki/r/training-non-finite.md"},
    "startsAt": "2025-11-21T03:55:10.250Z",
    "endsAt": "2025-11-21T03:59:10.250Z"}])"));
}

TEST(Alert, HasALinkOnlyWhereOneIsKnown) {
  AlertWords words = some_words();
  EXPECT_FALSE(parsed({some_alert()}, words)[0].contains("generatorURL"));
  words.generator_url = "http://127.0.0.1:9400/";
  EXPECT_EQ(parsed({some_alert()}, words)[0]["generatorURL"], "http://127.0.0.1:9400/");
}

TEST(Alert, HasARunbookThatOpens) {
  AlertWords words = some_words();
  const auto url = [&] { return parsed({some_alert()}, words)[0]["annotations"]["runbook_url"]; };
  words.runbook_base = "";
  EXPECT_EQ(url(), "docs/runbooks/training-non-finite.md");
  words.generator_url = "http://127.0.0.1:9400/";
  EXPECT_EQ(url(), "http://127.0.0.1:9400/runbooks/training-non-finite");
  words.generator_url = "http://127.0.0.1:9400";
  EXPECT_EQ(url(), "http://127.0.0.1:9400/runbooks/training-non-finite");
  words.runbook_base = "http://wiki/r";
  EXPECT_EQ(url(), "http://wiki/r/training-non-finite.md");
}

TEST(Alert, NeverEndsBeforeItStarts) {
  Alert alert = some_alert();
  alert.ends_at = alert.starts_at - 100;
  const json written = parsed({alert}, some_words())[0];
  EXPECT_EQ(written["endsAt"], written["startsAt"]);
}

TEST(Alert, WithBytesThatAreNoTextIsStillJson) {
  AlertWords words = some_words();
  words.run = "a\xff\"\n";
  Alert alert = some_alert();
  alert.description = "\x80\x01";
  const json written = parsed({alert}, words)[0];
  EXPECT_EQ(written["labels"]["run"], "a\xef\xbf\xbd\"\n");
  EXPECT_EQ(written["annotations"]["description"], "\xef\xbf\xbd\x01");
}

TEST(Alert, TimesAreRfc3339WhateverTheNumber) {
  EXPECT_EQ(rfc3339(1763697310.0), "2025-11-21T03:55:10.000Z");
  EXPECT_EQ(rfc3339(1709164799.9995), "2024-02-28T23:59:59.999Z");  // down, not into the next day
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double none : {std::nan(""), -infinity, -5.0, 0.0})
    EXPECT_EQ(rfc3339(none), "1970-01-01T00:00:01.000Z");
  for (const double late : {infinity, 1e300, 253402300800.0})
    EXPECT_EQ(rfc3339(late), "9999-12-31T23:59:59.000Z");
}

}  // namespace
}  // namespace gradvane::exporters
