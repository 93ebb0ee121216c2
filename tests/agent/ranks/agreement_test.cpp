#include "agent/ranks/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace gradvane::agent::ranks {
namespace {

using record::IncidentClass;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<RankRecord> at_step(std::size_t ranks, std::int64_t step = 7) {
  RankRecord record;
  record.sequence = 3;
  record.run_step = step;
  return std::vector<RankRecord>(ranks, record);
}

Outcome outcome(const std::vector<RankRecord>& records) {
  std::vector<std::string> sent;
  for (const RankRecord& record : records) {
    const auto bytes = encode(record);
    sent.emplace_back(bytes.begin(), bytes.end());
  }
  return agree(sent);
}

Agreement agreed(const std::vector<RankRecord>& records) {
  const Outcome found = outcome(records);
  EXPECT_EQ(found.why_not, "");
  return found.agreement.value();
}

TEST(Agreement, WhatOneRankSawNobodyOverrules) {
  for (std::size_t bad = 0; bad < 4; ++bad) {
    auto records = at_step(4);
    records[bad].loss_is_bad = true;
    const Agreement found = agreed(records);
    EXPECT_TRUE(found.loss_is_bad);
    EXPECT_FALSE(found.gradients_are_bad);
    EXPECT_EQ(found.origin, (Origin{static_cast<std::int32_t>(bad), true, 0, {}}));
  }
  const Agreement fine = agreed(at_step(4));
  EXPECT_FALSE(fine.loss_is_bad || fine.gradients_are_bad || fine.incident);
}

TEST(Agreement, ABadGradientAloneNamesNoRankSinceTheReductionSpreadsIt) {
  auto records = at_step(4);
  for (RankRecord& one : records) one.gradients_are_bad = true;
  EXPECT_FALSE(agreed(records).origin);
  records[2].loss_is_bad = records[3].loss_is_bad = true;
  EXPECT_EQ(agreed(records).origin.value().rank, 2);
}

TEST(Agreement, ARankWhoseLossAndGradientAreBadIsNamedByItsLossWhichCameFirst) {
  auto records = at_step(2);
  records[1].loss_is_bad = true;
  records[1].own_bad = BadElement{4, 9};
  records[1].gradients_are_bad = true;
  const auto name_of = [](std::int32_t param) { return "layer." + std::to_string(param); };
  EXPECT_EQ(origin_of(agreed(records), name_of),
            "rank 1 is the first whose own loss is not finite");
  records[1].loss_is_bad = false;
  EXPECT_EQ(origin_of(agreed(records), name_of),
            "rank 1 is the first whose own gradient is not finite, of layer.4 at element 9");
  records[1].gradients_are_bad = false;
  EXPECT_FALSE(agreed(records).origin) << "it was dropped, and the step has others";
}

TEST(Agreement, NormsOfPartsAreAddedUpAndWholeOnesAreNot) {
  auto records = at_step(2);
  records[0].norm = 3;
  records[1].norm = 4;
  EXPECT_EQ(agreed(records).norm, 4);
  records[0].is_part = records[1].is_part = true;
  EXPECT_EQ(agreed(records).norm, 5);
  records[0].norm = NAN;
  EXPECT_TRUE(std::isnan(agreed(records).norm.value()));
  records[0].is_part = records[1].is_part = false;
  EXPECT_TRUE(std::isnan(agreed(records).norm.value()));
  records[1].norm.reset();
  EXPECT_FALSE(agreed(records).norm) << "one does not know its own";
}

TEST(Agreement, AnIncidentOfOneRankIsOneOfAllSinceTheEarliestStep) {
  auto records = at_step(3);
  records[1].incident = IncidentClass::loss_divergence;
  records[1].bad_since = 6;
  records[2].incident = IncidentClass::nonfinite_weight;
  records[2].bad_since = 5;
  const Agreement found = agreed(records);
  EXPECT_EQ(found.incident, IncidentClass::loss_divergence);
  EXPECT_EQ(found.bad_since, 5);
}

TEST(Agreement, ASnapshotCountsIfEveryRankHasIt) {
  auto records = at_step(3);
  records[0].snapshots = {30, 20};
  records[1].snapshots = {20, 0};
  records[2].snapshots = {20, 30};
  EXPECT_THAT(agreed(records).snapshots, ElementsAre(20, 0));
  records[1].snapshots = {20, 30};
  EXPECT_THAT(agreed(records).snapshots, ElementsAre(30, 20));
  records[1].snapshots = {10, 0};
  EXPECT_THAT(agreed(records).snapshots, ElementsAre(0, 0));
}

TEST(Agreement, RanksThatAreNotInStepDoNotAgreeAndItIsSaidWhoIsWhere) {
  auto records = at_step(3);
  records[2].sequence = 4;
  EXPECT_EQ(outcome(records).why_not, "rank 2 is at exchange 4, rank 0 at 3");
  records = at_step(3);
  records[1].run_step = 8;
  EXPECT_EQ(outcome(records).why_not, "rank 1 is at step 8, rank 0 at 7");
  records = at_step(3);
  records[1].optimizer = 1;
  EXPECT_EQ(outcome(records).why_not, "rank 1 is at optimizer 1, rank 0 at 0");
  EXPECT_FALSE(outcome(records).agreement);
}

TEST(Agreement, ARecordThatCannotBeReadNamesItsRank) {
  const auto bytes = encode(at_step(1)[0]);
  const std::string good(bytes.begin(), bytes.end());
  const Outcome found = agree(std::vector<std::string>{good, good.substr(4)});
  EXPECT_FALSE(found.agreement);
  EXPECT_THAT(found.why_not, HasSubstr("rank 1 sent no record of the step"));
  EXPECT_FALSE(agree({}).agreement);
}

}  // namespace
}  // namespace gradvane::agent::ranks
