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
  return {{"rank", rank},       {"url", node + "/rank/" + std::to_string(rank)},
          {"state", "running"}, {"pid", 7},
          {"local_rank", 0},    {"started", 1.5},
          {"is_this", false}};
}

std::string list(const json& entries) { return json{{"world_size", 4}, {"ranks", entries}}.dump(); }

/// Of ranks 0 here and 2 there, after `told` has come from there.
json after(const OtherNodes::Told& told) {
  auto ranks = RanksAnswer::read(list({entry(0, kHere), entry(2, kThere)}), kHere);
  if (!ranks) throw std::runtime_error("the list could not be read");
  ranks->add_others({{kThere, told}});
  return json::parse(ranks->text()).at("ranks");
}

TEST(RanksAnswer, TheOtherNodesAreThoseOfTheRanksAndOnlyPortsThatRanksShare) {
  json own_port = entry(5, "http://alone:9464");
  own_port["url"] = "http://alone:9464";
  const auto ranks = RanksAnswer::read(
      list({entry(0, kHere), entry(2, kThere), entry(3, kThere), own_port, entry(4, "http://a:1")}),
      kHere);
  ASSERT_TRUE(ranks);
  EXPECT_THAT(ranks->other_nodes(), ElementsAre("http://a:1", kThere));
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
  const json ranks = after({.answers = true, .ranks = list({there, liar})});
  EXPECT_EQ(ranks[0], entry(0, kHere));
  EXPECT_EQ(ranks[1], there);
}

TEST(RanksAnswer, ANodeThatDoesNotAnswerLeavesItsRanksWithoutNumbers) {
  json expected = entry(2, kThere);
  expected["answers"] = false;
  EXPECT_EQ(after({.answers = false, .ranks = {}})[1], expected);
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
    EXPECT_EQ(after({.answers = true, .ranks = bad})[1], expected) << bad;
  const json sound = after({.answers = true, .ranks = with({{"loss", "<script>"}})})[1];
  EXPECT_EQ(sound.at("answers"), true);
  EXPECT_FALSE(sound.contains("loss"));
}

TEST(RanksAnswer, OwnRanksAloneAreToldToOtherNodes) {
  auto ranks = RanksAnswer::read(list({entry(0, kHere), entry(2, kThere)}), kHere);
  ASSERT_TRUE(ranks);
  ranks->leave_out_others();
  EXPECT_EQ(json::parse(ranks->text()).at("ranks"), json::array({entry(0, kHere)}));
  EXPECT_THAT(ranks->other_nodes(), IsEmpty());
}

TEST(RanksAnswer, AListOfAnotherVersionIsNoList) {
  for (const char* text :
       {"", "[]", "{}", R"({"ranks":[{}]})", R"({"ranks":[{"rank":"a","url":"b/rank/a"}]})"})
    EXPECT_FALSE(RanksAnswer::read(text, kHere)) << text;
}

}  // namespace
}  // namespace gradvane::exporters
