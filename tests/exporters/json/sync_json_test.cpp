#include "exporters/json/sync_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "exporters/api/api.hpp"
#include "exporters/json/record_json.hpp"
#include "exporters/text/sync_words.hpp"
#include "record/names.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using nlohmann::json;
using record::SyncKind;
using record::SyncOrigin;
using record::SyncReason;
using record::SyncSource;
using record::SyncSummary;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// As a reader gets it.
json read(const nlohmann::ordered_json& value) { return json::parse(to_text(value)); }

std::vector<std::string> keys_of(const nlohmann::ordered_json& value) {
  std::vector<std::string> keys;
  for (const auto& [key, ignored] : value.items()) keys.push_back(key);
  return keys;
}

// ---- the document ---------------------------------------------------------------------------------

TEST(SyncJson, HasTheKeysOfTheContract) {
  SyncSummary syncs = fakes::fake_syncs(16);
  syncs.detail = "a note";
  EXPECT_THAT(keys_of(to_json(syncs, fakes::fake_run())),
              ElementsAre("run", "rank", "source", "reason", "detail", "covered_seconds",
                          "blind_seconds", "gaps", "steps", "whole_steps", "budget", "own_budget",
                          "steps_over", "steps_uncounted", "most_in_step", "dropped", "totals",
                          "parts", "by_phase", "polls", "sites"));
  const json document = read(to_json(syncs));
  EXPECT_EQ(document["source"], "cupti");
  EXPECT_EQ(document["reason"], "counting");
  EXPECT_EQ(document["covered_seconds"], 2.0);
  EXPECT_EQ(document["steps"], 16);
  EXPECT_EQ(document["budget"], 8);
  EXPECT_EQ(document["own_budget"], 0);
  EXPECT_EQ(document["most_in_step"], json::parse(R"({"calls": 4, "run_step": 1})"));
  EXPECT_EQ(document["dropped"],
            json::parse(R"({"threads": 0, "sites": 0, "events": 0, "unbalanced": 0})"));
  EXPECT_EQ(document["steps_over"], json::parse(R"({"training": 0, "gradvane": 0})"));
  EXPECT_EQ(document["totals"], json::parse(R"({
    "training": {"device": {"calls": 16, "seconds": 0.125},
                 "memcpy": {"calls": 16, "seconds": 0.0625},
                 "d2h_read": {"calls": 32, "seconds": 0.25},
                 "alloc_free": {"calls": 1, "seconds": 0.001953125}},
    "gradvane": {"event": {"calls": 1, "seconds": 0.0009765625}},
    "profiler": {}})"));
  EXPECT_EQ(document["by_phase"]["backward"], json::parse(R"({"calls": 32, "seconds": 0.25})"));
  EXPECT_EQ(document["by_phase"].size(), 5U);
  EXPECT_EQ(document["parts"]["in_steps"], json::parse(R"({"calls": 65, "seconds": 0.439453125})"));
  EXPECT_EQ(document["parts"].size(), 4U);
  EXPECT_EQ(document["polls"]["training"], json::parse(R"({"calls": 64, "seconds": 0.00390625})"));
  EXPECT_EQ(document["polls"]["gradvane"], json::parse(R"({"calls": 0, "seconds": 0.0})"));
  EXPECT_EQ(document["polls"].size(), 2U);  // nobody can tell those of a profiler from the others
}

TEST(SyncJson, ASiteSaysWhereAndHowOftenAndHowLong) {
  const json document = read(to_json(fakes::fake_syncs(16)));
  EXPECT_EQ(document["sites"][0], json::parse(R"({
    "id": 1, "kind": "d2h_read", "origin": "training", "phase": "backward",
    "location": "train.py:41", "file": "/data/train.py", "line": 41, "function": "train_step",
    "stack": ["/data/train.py:80 main", "/data/train.py:97 <module>"], "thread": "python3",
    "calls": 32, "calls_in_steps": 32, "calls_per_step": 2.0, "seconds": 0.25, "max_seconds": 0.0625})"));
  EXPECT_EQ(document["sites"][3], json::parse(R"({
    "id": 4, "kind": "alloc_free", "origin": "training", "location": "libcublas.so.12!f+0x12",
    "stack": [], "thread": "pt_autograd_0", "calls": 1, "calls_in_steps": 1, "calls_per_step": 0.0625,
    "seconds": 0.001953125, "max_seconds": 0.001953125})"));
}

TEST(SyncJson, WhatWasNeverCountedIsAbsent) {
  for (const SyncSummary& syncs :
       {SyncSummary{}, fakes::blind_syncs(SyncSource::none, SyncReason::taken)}) {
    const json document = read(to_json(syncs));
    for (const auto* key :
         {"totals", "parts", "by_phase", "polls", "sites", "budget", "most_in_step"}) {
      EXPECT_FALSE(document.contains(key)) << key;
    }
    EXPECT_EQ(document["blind_seconds"], syncs.blind_seconds);
    EXPECT_FALSE(document.contains("detail"));
  }
}

TEST(SyncJson, WhatWasCountedStaysWhenCountingStops) {
  SyncSummary syncs = fakes::fake_syncs(4);
  syncs.source = SyncSource::none;
  syncs.reason = SyncReason::lost;
  EXPECT_EQ(read(to_json(syncs))["sites"].size(), 5U);
}

TEST(SyncJson, CountingWithoutAnythingToCountIsZeroAndNotAbsent) {
  SyncSummary syncs;
  syncs.source = SyncSource::shared;
  syncs.reason = SyncReason::gated;
  const json document = read(to_json(syncs));
  EXPECT_EQ(document["sites"], json::array());
  EXPECT_EQ(document["totals"]["training"], json::object());
  EXPECT_EQ(document["by_phase"]["forward"]["calls"], 0);
}

TEST(SyncJson, CallsAStepAreAbsentBeforeTheFirstStep) {
  SyncSummary syncs = fakes::fake_syncs(4);
  syncs.whole_steps = 0;
  EXPECT_FALSE(read(to_json(syncs))["sites"][0].contains("calls_per_step"));
}

TEST(SyncJson, SitesComeByTimeAsChosen) {
  SyncSummary syncs = fakes::fake_syncs(16);
  std::ranges::reverse(syncs.sites);
  const auto ids = [&](const SyncChoice& choice) {
    std::vector<std::int64_t> result;
    const json document = read(to_json(syncs, choice));
    for (const json& site : document["sites"]) result.push_back(site["id"]);
    return result;
  };
  EXPECT_THAT(ids({}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(ids({.origin = SyncOrigin::gradvane}), ElementsAre(5));
  EXPECT_THAT(ids({.origin = SyncOrigin::profiler}), ElementsAre());
  EXPECT_THAT(ids({.origin = SyncOrigin::training, .limit = 2}), ElementsAre(1, 2));
  EXPECT_THAT(ids({.origin = {}, .limit = 100}), ElementsAre(1, 2, 3, 4, 5));
}

TEST(SyncJson, TimeThatIsNoNumberIsAWordAndComesLast) {
  SyncSummary syncs = fakes::fake_syncs(16);
  syncs.sites[0].total.seconds = std::nan("");
  syncs.sites[1].max_seconds = INFINITY;
  const json sites = read(to_json(syncs))["sites"];
  EXPECT_EQ(sites[0]["max_seconds"], "inf");
  EXPECT_EQ(sites[4]["seconds"], "nan");
}

TEST(SyncJson, NamesThatAreNotUtf8StillMakeJson) {
  SyncSummary syncs = fakes::fake_syncs(1);
  syncs.sites[0].location = "<b>\"x\"</b>\xFF";
  EXPECT_EQ(read(to_json(syncs))["sites"][0]["location"], "<b>\"x\"</b>\xEF\xBF\xBD");
}

// ---- the API --------------------------------------------------------------------------------------

class SyncApiTest : public testing::Test {
 protected:
  void put(SyncSummary syncs) {
    EXPECT_EQ(board_.start(fakes::fake_run(), fakes::fake_model()), ExportResult::ok);
    EXPECT_EQ(board_.export_syncs(std::make_shared<const SyncSummary>(std::move(syncs))),
              ExportResult::ok);
  }
  json get(std::string_view query, int status = 200) const {
    const HttpResponse answer = syncs_json(board_, query);
    EXPECT_EQ(answer.status, status) << query;
    EXPECT_EQ(answer.content_type, "application/json");
    return json::parse(answer.body);
  }

  StatusBoard board_;
};

TEST_F(SyncApiTest, AnswersBeforeTheRunHasStarted) {
  const json answer = get("");
  EXPECT_EQ(answer["source"], "off");
  EXPECT_EQ(answer["reason"], "switched_off");
  EXPECT_FALSE(answer.contains("run"));
  EXPECT_FALSE(answer.contains("sites"));
}

TEST_F(SyncApiTest, AnswersWithTheDocument) {
  put(fakes::fake_syncs(16));
  EXPECT_EQ(get(""), read(to_json(fakes::fake_syncs(16), fakes::fake_run())));
}

TEST_F(SyncApiTest, AQueryChoosesSitesAndLeavesTheTotals) {
  put(fakes::fake_syncs(16));
  const json answer = get("limit=1&origin=gradvane");
  ASSERT_EQ(answer["sites"].size(), 1U);
  EXPECT_EQ(answer["sites"][0]["origin"], "gradvane");
  EXPECT_EQ(answer["totals"], get("")["totals"]);
  EXPECT_EQ(get("limit=3")["sites"].size(), 3U);
  EXPECT_EQ(get("origin=profiler")["sites"], json::array());
}

TEST_F(SyncApiTest, AQueryThatIsNotAllowedIsToldWhatIs) {
  put(fakes::fake_syncs(16));
  const std::pair<const char*, const char*> cases[] = {
      {"origin=me", "training, gradvane, profiler"},
      {"origin=", "training, gradvane, profiler"},
      {"limit=0", "from 1 to"},
      {"limit=-1", "a whole number"},
      {"limit=ten", "a whole number"},
      {"kind=stream", "limit, origin"}};
  for (const auto& [query, hint] : cases) {
    EXPECT_THAT(get(query, 400)["error"].get<std::string>(), HasSubstr(hint)) << query;
  }
}

TEST_F(SyncApiTest, TheStatusHasTheSourceAndTheLatestStep) {
  const auto syncs = [&] { return json::parse(status_json(board_, "").body)["syncs"]; };
  EXPECT_EQ(syncs(), json::parse(R"({"source": "off", "reason": "switched_off"})"));
  put(fakes::fake_syncs(1));
  const auto model = fakes::fake_model();
  fakes::FakeTraining training(model);
  auto [record, detail] = training.next();
  EXPECT_EQ(board_.export_step(record, detail, *model), ExportResult::ok);
  EXPECT_EQ(syncs(),
            json::parse(R"({"source": "cupti", "reason": "counting", "in_latest_step": 4})"));
  record.syncs.reset();
  EXPECT_EQ(board_.export_step(record, detail, *model), ExportResult::ok);
  EXPECT_EQ(syncs(), json::parse(R"({"source": "cupti", "reason": "counting"})"));
}

// ---- a step ---------------------------------------------------------------------------------------

TEST(SyncsOfAStep, AreInItsLineWhereAllOfItWasCounted) {
  record::StepRecord record;
  EXPECT_FALSE(to_json(record, {}).contains("syncs"));
  EXPECT_FALSE(to_json(record, {}).contains("own_sync_budget"));
  record.syncs.emplace();
  record.own_sync_budget = 2;
  EXPECT_EQ(read(to_json(record, {}))["syncs"],
            json::parse(R"({"training": {"calls": 0, "seconds": 0.0, "kinds": {}},
                            "gradvane": {"calls": 0, "seconds": 0.0, "kinds": {}}, "polls": 0})"));
  record.syncs->calls[0][index_of(SyncKind::stream)] = 3;
  record.syncs->calls[0][index_of(SyncKind::rejected_in_capture)] = 5;
  record.syncs->calls[1][index_of(SyncKind::event)] = 1;
  record.syncs->calls[2][index_of(SyncKind::device)] = 7;
  record.syncs->seconds = {0.5, 0.25, 0.125};
  record.syncs->polls = 9;
  const json line = read(to_json(record, {}));
  EXPECT_EQ(line["syncs"], json::parse(R"({
    "training": {"calls": 3, "seconds": 0.5, "kinds": {"stream": 3, "rejected_in_capture": 5}},
    "gradvane": {"calls": 1, "seconds": 0.25, "kinds": {"event": 1}},
    "profiler": {"calls": 7, "seconds": 0.125, "kinds": {"device": 7}}, "polls": 9})"));
  EXPECT_EQ(line["own_sync_budget"], 2);
}

TEST(SyncsSentence, SaysWhyNothingWasCountedAndWhoIsInTheWay) {
  SyncSummary syncs = fakes::blind_syncs(SyncSource::none, SyncReason::taken);
  syncs.detail = "nsys";
  EXPECT_EQ(
      sentence_of(syncs),
      "Host syncs are not counted: another tool has the one CUPTI subscription of this process "
      "(nsys).");
}

}  // namespace
}  // namespace gradvane::exporters
