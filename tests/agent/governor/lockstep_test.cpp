// Two governors that exchange what they tell, as two ranks do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "agent/governor/governor.hpp"
#include "agent/ranks/rank_record.hpp"
#include "tests/agent/governor/findings.hpp"

namespace gradvane::agent {
namespace {

using namespace test;
using record::IncidentClass;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

/// Of these run steps, the newest first.
std::vector<record::KeptSnapshot> kept(std::initializer_list<std::int64_t> run_steps) {
  std::vector<record::KeptSnapshot> snapshots;
  for (const std::int64_t run_step : run_steps) snapshots.push_back({.run_step = run_step});
  return snapshots;
}

Options agreeing(NonfinitePolicy policy) {
  Options options = with(policy);
  options.world_size = 2;
  options.ranks = RankAgreement::agree;
  return options;
}

class Ranks {
 public:
  explicit Ranks(const Options& options) : both_{Governor(options), Governor(options)} {}

  Governor& operator[](std::size_t rank) { return both_[rank]; }

  std::vector<Verdict> judge(const StepFinding& first, const StepFinding& second) {
    const std::vector<std::string> told{text(both_[0].tell(first)), text(both_[1].tell(second))};
    return {both_[0].judge_together(first, told, name_of).verdict,
            both_[1].judge_together(second, told, name_of).verdict};
  }

 private:
  static std::string name_of(std::int32_t param) { return "layer." + std::to_string(param); }

  static std::string text(const ranks::RankRecord& record) {
    const auto bytes = ranks::encode(record);
    return {bytes.begin(), bytes.end()};
  }

  std::array<Governor, 2> both_;
};

record::Incident divergence(std::int64_t first_step) {
  record::Incident incident;
  incident.kind = IncidentClass::loss_divergence;
  incident.first_step = incident.last_step = first_step;
  return incident;
}

Options going_back() {
  Options options = agreeing(NonfinitePolicy::watch);
  options.on_divergence = DivergencePolicy::rollback;
  options.snapshot_every = 10;
  return options;
}

TEST(Lockstep, ALossThatOneRankSawIsBadIsLeftOutOnBoth) {
  Ranks ranks(agreeing(NonfinitePolicy::skip));
  EXPECT_THAT(ranks.judge(good(1), good(1)), ElementsAre(Verdict::take, Verdict::take));
  EXPECT_THAT(ranks.judge(good(2), bad_loss(2)), ElementsAre(Verdict::skip, Verdict::skip));
  EXPECT_THAT(ranks.judge(bad_loss(3), good(3)), ElementsAre(Verdict::skip, Verdict::skip));
  for (std::size_t rank : {0U, 1U})
    EXPECT_THAT(ranks[rank].take_lines(),
                ElementsAre(HasSubstr("step 2: skip on all ranks; rank 1 is the first"),
                            HasSubstr("step 3: skip on all ranks; rank 0 is the first")));
}

TEST(Lockstep, AGradientThatWasBadBeforeItWasAveragedNamesTheRankAndTheParameter) {
  Ranks ranks(agreeing(NonfinitePolicy::skip));
  StepFinding first = bad_gradient(2);  // averaged, it is bad on both
  StepFinding second = bad_gradient(2);
  second.own_bad = ranks::BadElement{3, 17};
  EXPECT_THAT(ranks.judge(first, second), ElementsAre(Verdict::skip, Verdict::skip));
  EXPECT_THAT(ranks.judge(bad_gradient(3), bad_gradient(3)),
              ElementsAre(Verdict::skip, Verdict::skip));
  for (std::size_t rank : {0U, 1U})
    EXPECT_THAT(ranks[rank].take_lines(),
                ElementsAre("step 2: skip on all ranks; rank 1 is the first whose own gradient is "
                            "not finite, of layer.3 at element 17",
                            "step 3: skip on all ranks; which rank it came from is not known"));
}

TEST(Lockstep, ALossThatWentBadInALaterMicroStepNamesIt) {
  Ranks ranks(agreeing(NonfinitePolicy::skip));
  StepFinding in_third = bad_loss(2);
  in_third.bad_micro_step = 3;
  StepFinding in_first = bad_loss(3);
  in_first.bad_micro_step = 1;  // as without gradient accumulation
  EXPECT_THAT(ranks.judge(good(2), in_third), ElementsAre(Verdict::skip, Verdict::skip));
  EXPECT_THAT(ranks.judge(good(3), in_first), ElementsAre(Verdict::skip, Verdict::skip));
  for (std::size_t rank : {0U, 1U})
    EXPECT_THAT(ranks[rank].take_lines(),
                ElementsAre(HasSubstr("own loss is not finite, in micro-step 3"),
                            EndsWith("own loss is not finite")));
}

TEST(Lockstep, SkipsInARowAreCountedAlikeWhicheverRankHasThem) {
  Options options = agreeing(NonfinitePolicy::skip);
  options.skip_limit = 2;
  Ranks ranks(options);
  EXPECT_THAT(ranks.judge(bad_loss(1), good(1)), ElementsAre(Verdict::skip, Verdict::skip));
  EXPECT_THAT(ranks.judge(good(2), bad_loss(2)), ElementsAre(Verdict::stop, Verdict::stop));
}

TEST(Lockstep, AnIncidentOfOneRankActsOnBothOnceAlthoughTheOtherFindsItLater) {
  Ranks ranks(going_back());
  ranks[0].set_snapshots(kept({20, 10}));
  ranks[1].set_snapshots(kept({20, 10}));
  ranks[1].note_incident(divergence(18), true);
  EXPECT_THAT(ranks.judge(good(21), good(21)), ElementsAre(Verdict::rollback, Verdict::rollback));
  EXPECT_EQ(ranks[0].agreed_snapshot(), 10) << "that of step 20 came after the first bad step";
  EXPECT_EQ(ranks[1].agreed_snapshot(), 10);
  ranks[0].note_incident(divergence(19), true, 0);  // long ago
  EXPECT_THAT(ranks.judge(good(22), good(22)), ElementsAre(Verdict::take, Verdict::take));
  ranks[0].note_incident(divergence(30), true);
  EXPECT_THAT(ranks.judge(good(33), good(33)), ElementsAre(Verdict::rollback, Verdict::rollback))
      << "the control: another one";
}

TEST(Lockstep, AnIncidentThatWasToldWhenTheAgreementEndsIsActedOnAlone) {
  Ranks ranks(going_back());
  ranks[0].note_incident(divergence(18), true);
  (void)ranks[0].tell(good(21));
  ranks[0].lose_agreement("rank 1 has left");
  EXPECT_EQ(ranks[0].judge(good(21)).verdict, Verdict::stop) << "none goes back alone";
}

TEST(Lockstep, AnIncidentThatIsToldInAStepThatGoesBackAnywayIsOver) {
  Options options = going_back();
  options.on_nonfinite = NonfinitePolicy::rollback;
  Ranks ranks(options);
  ranks[1].note_incident(divergence(18), true);
  EXPECT_THAT(ranks.judge(bad_loss(21), good(21)),
              ElementsAre(Verdict::rollback, Verdict::rollback));
  EXPECT_THAT(ranks.judge(good(22), good(22)), ElementsAre(Verdict::take, Verdict::take));
}

TEST(Lockstep, AnIncidentThatAnotherRankHasSeenIsNotToldInTheWordsOfOnesOwn) {
  Ranks ranks(going_back());
  ranks[0].note_incident(divergence(18), true);
  record::Incident own = divergence(18);
  own.kind = IncidentClass::grad_exploding;
  own.evidence = "Step 18: the gradient norm is high.";
  ranks[1].note_incident(own, true);
  EXPECT_THAT(ranks.judge(good(21), good(21)), ElementsAre(Verdict::rollback, Verdict::rollback));
  EXPECT_THAT(ranks[1].reason(), EndsWith("an incident loss_divergence is open"));
}

TEST(Lockstep, ASnapshotThatOneRankLacksIsNotGoneBackTo) {
  Options options = agreeing(NonfinitePolicy::rollback);
  options.snapshot_every = 10;
  Ranks ranks(options);
  ranks[0].set_snapshots(kept({30, 20}));
  ranks[1].set_snapshots(kept({20}));
  EXPECT_THAT(ranks.judge(bad_loss(31), good(31)),
              ElementsAre(Verdict::rollback, Verdict::rollback));
  EXPECT_EQ(ranks[0].agreed_snapshot(), 20);
  EXPECT_EQ(ranks[1].agreed_snapshot(), 20);
  ranks[1].set_snapshots({});
  EXPECT_THAT(ranks.judge(bad_loss(32), good(32)),
              ElementsAre(Verdict::rollback, Verdict::rollback));
  EXPECT_EQ(ranks[0].agreed_snapshot(), 0);
}

TEST(Lockstep, RanksThatAreNotInStepDecideAloneFromThenOnAndSaySoOnce) {
  Ranks ranks(agreeing(NonfinitePolicy::skip));
  EXPECT_THAT(ranks.judge(good(1), good(2)), ElementsAre(Verdict::take, Verdict::take));
  EXPECT_FALSE(ranks[0].agrees() || ranks[1].agrees());
  EXPECT_FALSE(ranks[0].agreed_snapshot());
  EXPECT_EQ(ranks[0].judge(bad_loss(2)).verdict, Verdict::take)
      << "a loss alone: each rank has its own";
  EXPECT_EQ(ranks[0].judge(bad_gradient(3)).verdict, Verdict::skip);
  EXPECT_EQ(ranks[0].take_lost_agreement(), "rank 1 is at step 2, rank 0 at 1");
  EXPECT_FALSE(ranks[0].take_lost_agreement());
  EXPECT_EQ(ranks[0].summary()->ranks_agree, false);
}

/// Files are read again by each rank at its own time: then one would skip a step that the other takes.
TEST(Lockstep, APolicyThatChangesChangesAtTheSameStepOnBothAndIsThatOfRank0) {
  Ranks ranks(agreeing(NonfinitePolicy::skip));
  ranks::Policy stop = ranks::policy_of(agreeing(NonfinitePolicy::stop));
  stop.skip_limit = 9;
  ranks[1].want(stop);  // that of rank 1 alone does not count
  EXPECT_THAT(ranks.judge(bad_loss(1), good(1)), ElementsAre(Verdict::skip, Verdict::skip));
  ranks[0].want(stop);
  EXPECT_THAT(ranks.judge(bad_loss(2), good(2)), ElementsAre(Verdict::stop, Verdict::stop));
  EXPECT_FALSE(ranks[0].take_policy_of_ranks()) << "its own is no news";
  EXPECT_EQ(ranks[1].take_policy_of_ranks(), stop);
  EXPECT_FALSE(ranks[1].take_policy_of_ranks()) << "once";
}

TEST(Lockstep, OneProcessAloneDoesNotAskAnybody) {
  Options options = agreeing(NonfinitePolicy::skip);
  EXPECT_EQ(Governor(options).summary()->ranks_agree, true);
  options.world_size = 1;
  EXPECT_FALSE(Governor(options).agrees());
  EXPECT_FALSE(Governor(options).summary());
  options = agreeing(NonfinitePolicy::watch);
  EXPECT_FALSE(Governor(options).agrees()) << "nothing acts, so there is nothing to agree on";
  options.compare_replicas_every = 100;
  EXPECT_TRUE(Governor(options).agrees());
}

}  // namespace
}  // namespace gradvane::agent
