// What a node makes of the lists of its own ranks and of other nodes.
#include "exporters/node/ranks_answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gradvane::exporters {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

const std::string kHere = "http://here:9464";
const std::string kThere = "http://there:9464";

json entry(int rank, const std::string& node) {
  return {{"rank", rank},
          {"url", node + "/rank/" + std::to_string(rank)},
          {"state", "running"},
          {"pid", 7},
          {"host", node == kHere ? "here" : "there"},
          {"local_rank", 0},
          {"started", 1.5},
          {"is_this", false}};
}

std::string list(const json& entries, const std::string& run = "train") {
  return json{{"run", run}, {"world_size", 8}, {"ranks", entries}}.dump();
}

/// Of ranks 0 here and 2 there, after `answer` has come from there.
json after(const OtherNodes::Answer& answer) {
  auto ranks = RanksAnswer::read(list({entry(0, kHere), entry(2, kThere)}), kHere, "here");
  if (!ranks) throw std::runtime_error("the list could not be read");
  ranks->add_others({{kThere, answer}});
  return json::parse(ranks->text()).at("ranks");
}

TEST(RanksAnswer, TheOtherNodesAreThoseOfTheRanksAndOnlyPortsThatRanksShare) {
  json own_port = entry(5, "http://alone:9464");
  own_port["url"] = "http://alone:9464";
  const auto ranks = RanksAnswer::read(
      list({entry(0, kHere), entry(2, kThere), entry(3, kThere), own_port, entry(4, "http://a:1")}),
      kHere, "here");
  ASSERT_TRUE(ranks);
  EXPECT_THAT(ranks->other_nodes(), ElementsAre("http://a:1", kThere));
}

/// Its token must not go to who has that address now.
TEST(RanksAnswer, AnAddressThatMayBeAnotherProgramsIsNotAsked) {
  json over = entry(1, "http://b:1");
  over["state"] = "finished";
  json failed = entry(2, "http://c:1");
  failed["state"] = "failed";
  const json of_a_larger_attempt = entry(8, "http://d:1");
  json loopback = entry(3, "http://127.0.0.1:9465");
  json loopback6 = entry(4, "http://[::1]:9465");
  json own_loopback = entry(5, "http://127.0.0.1:9466");
  own_loopback["host"] = "here";
  const auto ranks = RanksAnswer::read(
      list({entry(0, kHere), over, failed, of_a_larger_attempt, loopback, loopback6, own_loopback}),
      kHere, "here");
  ASSERT_TRUE(ranks);
  EXPECT_THAT(ranks->other_nodes(), ElementsAre("http://127.0.0.1:9466"));
}

TEST(RanksAnswer, AnotherRunThatHasThePortNowIsNotTakenForThisOne) {
  json there = entry(2, kThere);
  there.update({{"answers", true}, {"loss", 1.5}});
  json expected = entry(2, kThere);
  expected["answers"] = false;
  const std::string of_another = list(json::array({there}), "eval");
  EXPECT_EQ(after({.is_there = true, .ranks = of_another})[1], expected);
}

/// A copy of it would need a stack of some megabytes.
TEST(RanksAnswer, WhatIsNestedDeeplyIsLeftOut) {
  json expected = entry(2, kThere);
  expected["answers"] = false;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& bad :
       {deep, list(json::array({entry(2, kThere)})).substr(0, 40) + deep,
        R"({"run":"train","ranks":[{"rank":2,"url":"http://there:9464/rank/2","state":"running",)"
        R"("answers":true,"open_incidents":)" +
            deep + "}]}"})
    EXPECT_EQ(after({.is_there = true, .ranks = bad})[1].at("state"), "running");
}

TEST(RanksAnswer, WhatAnotherNodeTellsOfItsOwnRanksIsTaken) {
  json there = entry(2, kThere);
  there.update({{"answers", true},
                {"state", "stalled"},
                {"steps", 9},
                {"run_step", 12},
                {"loss", "nan"},
                {"grad_norm", 1.25},
                {"nonfinite_steps", 1},
                {"incidents_total", 3},
                {"open_incidents", {"stalled"}}});
  json liar = entry(0, kHere);  // it is not that node's to tell
  liar.update({{"answers", true}, {"state", "failed"}});
  const json ranks = after({.is_there = true, .ranks = list({there, liar})});
  EXPECT_EQ(ranks[0], entry(0, kHere));
  EXPECT_EQ(ranks[1], there);
}

TEST(RanksAnswer, ANodeThatDoesNotAnswerLeavesItsRanksWithoutNumbers) {
  json expected = entry(2, kThere);
  expected["answers"] = false;
  EXPECT_EQ(after({.is_there = false, .ranks = {}})[1], expected);
}

TEST(RanksAnswer, WhatNoNodeWritesIsLeftOut) {
  json expected = entry(2, kThere);
  expected["answers"] = false;
  const auto with = [](const json& changes) {
    json there = entry(2, kThere);
    there.update({{"answers", true}, {"steps", 9}, {"open_incidents", json::array()}});
    there.update(changes);
    return list(json::array({there}));
  };
  for (const std::string& bad :
       {std::string("no JSON"), std::string("[]"), std::string("{}"), list(json::array({7})),
        list(json::array({json::object()})), with({{"state", "<b>"}}), with({{"state", 3}}),
        with({{"steps", -1}}), with({{"steps", "many"}}), with({{"answers", "yes"}}),
        with({{"open_incidents", "all"}}), with({{"open_incidents", {7}}}),
        with({{"url", "http://elsewhere:1/rank/2"}}), with({{"rank", 3}})})
    EXPECT_EQ(after({.is_there = true, .ranks = bad})[1], expected) << bad;
  const json sound = after({.is_there = true, .ranks = with({{"loss", "<script>"}})})[1];
  EXPECT_EQ(sound.at("answers"), true);
  EXPECT_FALSE(sound.contains("loss"));
}

TEST(RanksAnswer, OwnRanksAloneAreToldToOtherNodes) {
  auto ranks = RanksAnswer::read(list({entry(0, kHere), entry(2, kThere)}), kHere, "here");
  ASSERT_TRUE(ranks);
  ranks->leave_out_others();
  EXPECT_EQ(json::parse(ranks->text()).at("ranks"), json::array({entry(0, kHere)}));
  EXPECT_THAT(ranks->other_nodes(), IsEmpty());
}

TEST(RanksAnswer, AListOfAnotherVersionIsNoList) {
  for (const char* text :
       {"", "[]", "{}", R"({"ranks":[{}]})", R"({"ranks":[{"rank":"a","url":"b/rank/a"}]})"})
    EXPECT_FALSE(RanksAnswer::read(text, kHere, "here")) << text;
}

}  // namespace
}  // namespace gradvane::exporters
