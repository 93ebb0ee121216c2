// The subscription and its troubles.
#include "collectors/sync_ledger/cupti_ledger.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <string>
#include <thread>

#include "tests/collectors/sync_ledger/counting_ledger.hpp"

namespace gradvane::collectors {
namespace {

using record::StepSyncs;
using record::SyncReason;
using record::SyncSource;
using testing::HasSubstr;
using testing::IsEmpty;

class CuptiLedgerTest : public LedgerTest {
 public:
  ~CuptiLedgerTest() override { ::unsetenv("KINETO_USE_DAEMON"); }

 protected:
  CuptiLedgerTest() { ::unsetenv("KINETO_USE_DAEMON"); }
};

TEST_F(CuptiLedgerTest, NobodyCountsBeforeAnybodyAsks) {
  call(kSync, kMicrosecond);
  const auto summary = ledger_->summary();
  EXPECT_EQ(summary.source, SyncSource::off);
  EXPECT_EQ(summary.reason, SyncReason::switched_off);
  EXPECT_FALSE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, OnlyTheCallsOfTheTableAreEnabled) {
  ledger_->join({});
  EXPECT_EQ(ledger_->summary().source, SyncSource::cupti);
  EXPECT_EQ(cupti_.enabled(), std::ssize(cuda_calls()) + 2)
      << "and CUPTI's own last word, and the call that shows it alive";
  EXPECT_EQ(ledger_->summary().detail, "");
  EXPECT_STREQ(cupti_.last_params().name, "Gradvane");
}

TEST_F(CuptiLedgerTest, ACallThatThisCuptiKnowsByAnotherNameIsLeftOut) {
  cupti_.rename(kSync);
  ledger_->join({});
  EXPECT_EQ(cupti_.enabled(), std::ssize(cuda_calls()) + 1);
  const auto all = std::to_string(cuda_calls().size());
  EXPECT_EQ(
      ledger_->summary().detail,
      "this CUPTI knows " + std::to_string(cuda_calls().size() - 1) + " of " + all + " calls");
  call(kSync, kMicrosecond);
  EXPECT_THAT(calls_of(ledger_->summary()), IsEmpty());
}

TEST_F(CuptiLedgerTest, TheLastToLeaveGivesTheSubscriptionBack) {
  ledger_->join({});
  ledger_->join({});
  ledger_->leave();
  EXPECT_TRUE(cupti_.is_subscribed());
  ledger_->leave();
  EXPECT_FALSE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().source, SyncSource::off);
}

TEST_F(CuptiLedgerTest, WithoutADriverInTheProcessNothingIsLoadedAndTheReasonSaysSo) {
  fake_driver = false;
  ledger_->join({});
  look_and_step();
  EXPECT_FALSE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().source, SyncSource::none);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::no_cuda);
}

TEST_F(CuptiLedgerTest, ADriverThatComesLaterIsFollowedByTheTrainingThread) {
  fake_driver = false;
  ledger_->join({});
  fake_driver = true;
  ledger_->look(false);
  EXPECT_FALSE(cupti_.is_subscribed()) << "the worker itself asks for nothing";
  (void)ledger_->end_step();
  EXPECT_TRUE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().reason, SyncReason::counting);
}

TEST_F(CuptiLedgerTest, WhereNoThreadTakesStepsTheLookItselfSubscribes) {
  fake_driver = false;
  ledger_->join({});
  fake_driver = true;
  ledger_->look(true);
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, WithoutALibraryTheReasonSaysSo) {
  fake_library = false;
  ledger_->join({});
  EXPECT_EQ(ledger_->summary().reason, SyncReason::no_cupti);
  EXPECT_THAT(ledger_->summary().detail, HasSubstr("libcupti.so"));
}

TEST_F(CuptiLedgerTest, ALibraryWithoutADriverIsNoDriver) {
  fake_driver = false;
  cupti_.refuse(999);
  ledger_->join({.at_once = true});
  EXPECT_EQ(ledger_->summary().reason, SyncReason::no_driver);
  EXPECT_THAT(ledger_->summary().detail, HasSubstr("999"));
}

TEST_F(CuptiLedgerTest, ADriverThatRefusesIsSaidWithItsWord) {
  cupti_.refuse(41);
  ledger_->join({});
  EXPECT_EQ(ledger_->summary().reason, SyncReason::refused);
  EXPECT_THAT(ledger_->summary().detail, HasSubstr("CONFIDENTIAL_COMPUTING"));
}

TEST_F(CuptiLedgerTest, WhereAnotherToolHasItItsOwnerIsNamedAndWeAskAgainLater) {
  cupti_.take_by("Nsight Systems");
  ledger_->join({});
  EXPECT_EQ(ledger_->summary().source, SyncSource::none);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::taken);
  EXPECT_EQ(ledger_->summary().detail, "by Nsight Systems");
  cupti_.take_by("");
  pass(59 * kSecond);
  look_and_step();
  EXPECT_FALSE(cupti_.is_subscribed());
  pass(2 * kSecond);
  look_and_step();
  EXPECT_EQ(ledger_->summary().source, SyncSource::cupti);
}

TEST_F(CuptiLedgerTest, TimeThatNobodyCountedIsSaid) {
  cupti_.take_by("Nsight Systems");
  ledger_->join({});
  pass(61 * kSecond);
  cupti_.take_by("");
  look_and_step();
  pass(5 * kSecond);
  const auto summary = ledger_->summary();
  EXPECT_DOUBLE_EQ(summary.blind_seconds, 61);
  EXPECT_DOUBLE_EQ(summary.covered_seconds, 5);
}

// Profilers ------------------------------------------------------------------------------------------------

TEST_F(CuptiLedgerTest, TheEnvironmentIsNeverWrittenTo) {
  // Other threads read it without a lock.
  for (const ProfilerRule rule : {ProfilerRule::keep, ProfilerRule::yield, ProfilerRule::share}) {
    ledger_->join({.profiler = rule});
    ledger_->profiler_begins(kProfiler);
    EXPECT_EQ(::getenv("KINETO_USE_DAEMON"), nullptr);
    ledger_->profiler_ended();
    ledger_->leave();
  }
}

TEST_F(CuptiLedgerTest, AProfilerThatWasToldBeforehandIsLeftAlone) {
  ::setenv("KINETO_USE_DAEMON", "1", 1);
  ledger_->join({});
  EXPECT_EQ(ledger_->summary().reason, SyncReason::gated);
  ledger_->leave();
  ledger_->join({.profiler = ProfilerRule::yield});
  ledger_->profiler_begins(kProfiler);
  EXPECT_TRUE(cupti_.is_subscribed()) << "it does not ask";
}

TEST_F(CuptiLedgerTest, WhoJoinedByDefaultGivesWayToWhoMeansIt) {
  ledger_->join({.is_default = true});
  ledger_->join({.profiler = ProfilerRule::yield});
  ledger_->profiler_begins(kProfiler);
  EXPECT_FALSE(cupti_.is_subscribed());
  ledger_->profiler_ended();
  ledger_->join({.profiler = ProfilerRule::keep});
  ledger_->profiler_begins(kProfiler);
  EXPECT_FALSE(cupti_.is_subscribed()) << "the first who meant it decides";
}

TEST_F(CuptiLedgerTest, AProfilerThatBeginsBeforeTheDriverIsYieldedTo) {
  fake_driver = false;
  ledger_->join({.profiler = ProfilerRule::yield});
  ledger_->profiler_begins(kProfiler);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::yielded);
  fake_driver = true;
  look_and_step();
  EXPECT_FALSE(cupti_.is_subscribed());
  ledger_->profiler_ended();
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, TheInnerOfTwoProfilersDoesNotEndTheOuter) {
  ledger_->join({.profiler = ProfilerRule::yield});
  ledger_->profiler_begins(kProfiler);
  ledger_->profiler_begins(kProfiler);
  ledger_->profiler_ended();
  EXPECT_FALSE(cupti_.is_subscribed());
  ledger_->profiler_ended();
  EXPECT_TRUE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().gaps, 1);
}

TEST_F(CuptiLedgerTest, ARunThatEndsWithinAProfilerLeavesTheNextOneItsSight) {
  ledger_->join({.profiler = ProfilerRule::yield});
  ledger_->profiler_begins(kProfiler);
  ledger_->leave();
  ledger_->join({});
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, AProfilerThatKeepsTheSubscriptionIsNamedAndWeAskAgainLater) {
  ledger_->join({.profiler = ProfilerRule::yield});
  ledger_->profiler_begins(kProfiler);
  cupti_.take_by("somebody");  // as Kineto does until torch 2.13, for good
  ledger_->profiler_ended();
  EXPECT_EQ(ledger_->summary().reason, SyncReason::taken);
  EXPECT_EQ(ledger_->summary().detail, "by somebody, since PyTorch's profiler was given it");
  EXPECT_EQ(ledger_->summary().gaps, 1);
  cupti_.take_by("");
  pass(61 * kSecond);
  look_and_step();
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, WhereProtonIsLoadedNothingIsLoadedAndTheReasonSaysSo) {
  fake_proton = true;
  ledger_->join({});
  EXPECT_FALSE(cupti_.is_subscribed());
  EXPECT_EQ(fake_loads, 0);
  EXPECT_EQ(ledger_->summary().source, SyncSource::none);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::proton);
  pass(61 * kSecond);
  look_and_step();
  ledger_->driver_comes();
  EXPECT_FALSE(cupti_.is_subscribed()) << "it stays loaded";
}

TEST_F(CuptiLedgerTest, ProtonThatIsLoadedBeforeTheDriverIsSeen) {
  fake_driver = false;
  ledger_->join({});
  fake_proton = fake_driver = true;
  look_and_step();
  EXPECT_FALSE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().reason, SyncReason::proton);
}

TEST_F(CuptiLedgerTest, WhoRequiresCountsHasThemBesideProton) {
  fake_proton = true;
  ledger_->join({.is_default = true});
  EXPECT_FALSE(cupti_.is_subscribed());
  ledger_->join({.at_once = true, .is_required = true});
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, ProtonThatComesAfterTheFirstCountsChangesNothing) {
  ledger_->join({.profiler = ProfilerRule::yield});
  fake_proton = true;
  ledger_->profiler_begins(kProfiler);
  ledger_->profiler_ended();
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, UnderTheYieldRuleTheProfilerGetsTheSubscriptionWhileItRuns) {
  ledger_->join({.profiler = ProfilerRule::yield});
  EXPECT_EQ(::getenv("KINETO_USE_DAEMON"), nullptr);
  ledger_->profiler_begins(kProfiler);
  EXPECT_FALSE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().reason, SyncReason::yielded);
  pass(120 * kSecond);
  look_and_step();
  EXPECT_FALSE(cupti_.is_subscribed()) << "not before the profiler is done";
  ledger_->profiler_ended();
  EXPECT_TRUE(cupti_.is_subscribed());
  EXPECT_EQ(ledger_->summary().gaps, 1);
}

TEST_F(CuptiLedgerTest, ACuptiThatIsTooOldToShareIsGivenUpWhileTheProfilerRuns) {
  ledger_->join({.profiler = ProfilerRule::share});
  EXPECT_EQ(cupti_.last_params().allow_multiple, 0);
  ledger_->profiler_begins(kProfiler);
  EXPECT_FALSE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, ADriverThatComesWhileWeSubscribeIsNotWaitedFor) {
  // To subscribe may set the driver up, and that calls the injected library, on the same thread.
  cupti_.on_subscribe([&] { ledger_->driver_comes(); });
  ledger_->join({.at_once = true});
  EXPECT_TRUE(cupti_.is_subscribed());
  EXPECT_EQ(cupti_.subscriptions(), 1);
}

TEST_F(CuptiLedgerTest, ADriverThatComesOnAnotherThreadWhileWeSubscribeIsNotWaitedFor) {
  cupti_.on_subscribe([&] { std::thread([&] { ledger_->driver_comes(); }).join(); });
  ledger_->join({.at_once = true});
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, TheDriverBringsTheSubscription) {
  fake_driver = false;
  ledger_->join({});
  EXPECT_FALSE(cupti_.is_subscribed());
  ledger_->driver_comes();
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, UnderOtherRulesAProfilerChangesNothing) {
  ledger_->join({});
  ledger_->profiler_begins(kProfiler);
  EXPECT_TRUE(cupti_.is_subscribed());
}

TEST_F(CuptiLedgerTest, ACallbackAfterTheEndDoesNothing) {
  ledger_->join({});
  std::uint64_t correlation = 0;
  cupti_.enter(kSync, nullptr, correlation);
  ledger_->leave();
  cupti_.exit(kSync, nullptr, correlation);
  call(kSync, kMicrosecond);
  EXPECT_THAT(calls_of(ledger_->summary()), IsEmpty());
}

}  // namespace
}  // namespace gradvane::collectors
