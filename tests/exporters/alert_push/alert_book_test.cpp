#include "exporters/alert_push/alert_book.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace gradvane::exporters {
namespace {

using record::IncidentClass;
using testing::IsEmpty;
using testing::SizeIs;
using Clock = AlertBook::Clock;

constexpr double kBegin = 1.7e9;

/// So many seconds after everything began.
AlertMoment at(double seconds) {
  return {kBegin + seconds, Clock::time_point{} + std::chrono::milliseconds(
                                                      static_cast<std::int64_t>(seconds * 1000))};
}

record::Incident incident(std::int64_t id, IncidentClass kind, double opened) {
  record::Incident made;
  made.id = id;
  made.kind = kind;
  made.opened_at = kBegin + opened;
  return made;
}

class Book : public testing::Test {
 protected:
  void open(std::int64_t id, IncidentClass kind, double when, const std::string& words = "open") {
    book_.put(incident(id, kind, when), words);
  }
  void close(std::int64_t id, IncidentClass kind, double opened, double closed) {
    auto over = incident(id, kind, opened);
    over.closed_at = kBegin + closed;
    book_.put(over, "over");
  }
  /// Everything that is due, told and taken.
  std::vector<Alert> tell(double when, bool taken = true) {
    auto alerts = book_.due(at(when));
    book_.note_told(alerts, at(when).steady, taken);
    return alerts;
  }
  [[nodiscard]] bool is_due(double when) const { return book_.next() <= at(when).steady; }

  AlertBook book_{AlertWindows{}};
};

TEST_F(Book, HasNothingToTellAtFirst) {
  EXPECT_EQ(book_.next(), Clock::time_point::max());
  EXPECT_THAT(book_.due(at(0)), IsEmpty());
  EXPECT_EQ(book_.untold(), 0U);
}

TEST_F(Book, TellsOfAnIncidentAtOnceAndOnce) {
  open(1, IncidentClass::loss_divergence, 5, "seven losses in a row");
  EXPECT_TRUE(is_due(5));
  EXPECT_EQ(book_.untold(), 1U);
  const auto alerts = tell(6);
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_EQ(alerts[0].rule->name, "GradvaneLossDiverging");
  EXPECT_EQ(alerts[0].starts_at, kBegin + 5);
  EXPECT_EQ(alerts[0].ends_at, kBegin + 6 + 240);
  EXPECT_EQ(alerts[0].description, "seven losses in a row");
  EXPECT_FALSE(is_due(7));
  EXPECT_THAT(book_.due(at(7)), IsEmpty());
  EXPECT_EQ(book_.untold(), 0U);
}

TEST_F(Book, TellsAgainOfWhatLastsWithALaterEnd) {
  open(1, IncidentClass::loss_divergence, 0);
  (void)tell(1);
  EXPECT_FALSE(is_due(60.9));
  EXPECT_TRUE(is_due(61));
  const auto alerts = tell(61);
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_EQ(alerts[0].starts_at, kBegin);
  EXPECT_EQ(alerts[0].ends_at, kBegin + 61 + 240);
  EXPECT_LT(AlertBook::kAgain * 2, AlertBook::kUnlessToldAgain);  // one may get lost
}

TEST_F(Book, TellsNoMoreOfTheSameThatIsReportedAgain) {
  open(1, IncidentClass::dead_group, 0, "the group is dead");
  (void)tell(1);
  open(1, IncidentClass::dead_group, 0, "the group is dead");
  EXPECT_FALSE(is_due(2));
  open(1, IncidentClass::dead_group, 0, "two groups are dead");
  EXPECT_TRUE(is_due(2));
  EXPECT_EQ(tell(2)[0].description, "two groups are dead");
}

TEST_F(Book, EndsAnAlertWhenTheRuleDoes) {
  open(1, IncidentClass::nonfinite_grad, 0);
  (void)tell(1);
  close(1, IncidentClass::nonfinite_grad, 0, 20);  // soon over: 5 minutes count, 10 more it stays
  EXPECT_EQ(tell(21)[0].ends_at, kBegin + 900);
  EXPECT_EQ(book_.next(), Clock::time_point::max());

  open(2, IncidentClass::dead_group, 0);
  close(2, IncidentClass::dead_group, 0, 4000);  // it lasted: 10 minutes after its end
  EXPECT_EQ(tell(4000)[0].ends_at, kBegin + 4600);
}

TEST_F(Book, EndsAnAlertOfWhichTheRuleDoesNotKeepFiringAtOnce) {
  open(1, IncidentClass::stalled, 0);
  (void)tell(1);
  close(1, IncidentClass::stalled, 0, 30);
  const auto alerts = tell(31);
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_EQ(alerts[0].rule->name, "GradvaneTrainingStalled");
  EXPECT_EQ(alerts[0].ends_at, kBegin + 30);
}

TEST_F(Book, LeavesOtherRanksTimeToReportThatTheAlertLasts) {
  book_ = AlertBook({.others = AlertBook::kAgain + std::chrono::seconds(30)});
  open(1, IncidentClass::stalled, 0);
  (void)tell(1);
  close(1, IncidentClass::stalled, 0, 30);
  EXPECT_EQ(tell(31)[0].ends_at, kBegin + 120);
  open(2, IncidentClass::nonfinite_grad, 0);
  close(2, IncidentClass::nonfinite_grad, 0, 1);
  EXPECT_EQ(tell(32)[0].ends_at, kBegin + 900) << "this one lasts long enough anyway";
}

TEST_F(Book, EndsWithTheIncidentWhereTheWindowsAreZero) {
  book_ = AlertBook({.event = std::chrono::seconds(0), .keep_firing = std::chrono::seconds(0)});
  open(1, IncidentClass::nonfinite_grad, 0);
  (void)tell(1);
  close(1, IncidentClass::nonfinite_grad, 0, 20);
  EXPECT_EQ(tell(21)[0].ends_at, kBegin + 20);
}

TEST_F(Book, TellsOfOneThatWasOverBeforeItWasTold) {
  open(1, IncidentClass::nonfinite_grad, 0);
  close(1, IncidentClass::nonfinite_grad, 0, 0.1);
  const auto alerts = tell(1);
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_EQ(alerts[0].ends_at, kBegin + 900);
  EXPECT_EQ(alerts[0].description, "over");
}

TEST_F(Book, ForgetsWhatWasNeverTakenAndIsOver) {
  open(1, IncidentClass::stalled, 0);
  close(1, IncidentClass::stalled, 0, 10);
  EXPECT_THAT(book_.due(at(11)), IsEmpty());
  EXPECT_EQ(book_.untold(), 0U);

  open(2, IncidentClass::stalled, 20);
  (void)tell(21, false);  // refused
  close(2, IncidentClass::stalled, 20, 30);
  EXPECT_THAT(book_.due(at(31)), IsEmpty());
}

TEST_F(Book, KeepsUntoldWhatWasNotNoted) {
  open(1, IncidentClass::stalled, 0);
  EXPECT_THAT(book_.due(at(1)), SizeIs(1));
  EXPECT_THAT(book_.due(at(2)), SizeIs(1));
  EXPECT_EQ(book_.untold(), 1U);
}

TEST_F(Book, TellsTheLatestWhenMuchHappensMeanwhile) {
  open(1, IncidentClass::stalled, 0, "old");
  const auto sent = book_.due(at(1));
  open(1, IncidentClass::stalled, 0, "new");  // while the request is on its way
  book_.note_told(sent, at(2).steady, true);
  EXPECT_EQ(book_.untold(), 1U);
  const auto alerts = tell(2);
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_EQ(alerts[0].description, "new");
}

TEST_F(Book, MakesOneAlertOfTheClassesOfARule) {
  open(1, IncidentClass::nonfinite_grad, 0, "gradients");
  open(2, IncidentClass::nonfinite_weight, 1, "weights");
  const auto alerts = tell(2);
  ASSERT_THAT(alerts, SizeIs(1));
  EXPECT_EQ(alerts[0].starts_at, kBegin);
  EXPECT_EQ(alerts[0].description, "weights");
  close(2, IncidentClass::nonfinite_weight, 1, 3);
  const auto still = tell(3);
  EXPECT_EQ(still[0].description, "gradients");
  EXPECT_EQ(still[0].ends_at, kBegin + 901);  // later than 4 minutes from now
  close(1, IncidentClass::nonfinite_grad, 0, 4);
  EXPECT_EQ(tell(4)[0].ends_at, kBegin + 901);
}

TEST_F(Book, TakesOneThatComesBackInTimeForTheSame) {
  open(1, IncidentClass::loss_spike, 0);
  close(1, IncidentClass::loss_spike, 0, 1);
  (void)tell(2);
  open(2, IncidentClass::loss_spike, 800);
  EXPECT_EQ(tell(801)[0].starts_at, kBegin);
  close(2, IncidentClass::loss_spike, 800, 801);
  (void)tell(802);
  open(3, IncidentClass::loss_spike, 1701);  // after 800 + 900: another one
  EXPECT_EQ(tell(1702)[0].starts_at, kBegin + 1701);
}

TEST_F(Book, StaysAsSmallInAStorm) {
  for (std::int64_t id = 1; id <= 10000; ++id) {
    const auto kind = static_cast<IncidentClass>(id % record::kIncidentClasses);
    open(id, kind, static_cast<double>(id), "incident " + std::to_string(id));
  }
  const auto alerts = tell(10001);
  EXPECT_THAT(alerts, SizeIs(record::kAlertRules.size() - 2));  // all but the two of a run's end
  EXPECT_THAT(tell(10002), IsEmpty());
}

TEST_F(Book, SaysAtTheEndThatWhatIsOpenIsToldForLonger) {
  open(1, IncidentClass::stalled, 0);
  open(2, IncidentClass::loss_spike, 0);
  close(2, IncidentClass::loss_spike, 0, 1);
  book_.put_end_of_run(*record::kRunTerminatedRule, kBegin + 2, "SIGTERM");
  (void)tell(2);
  book_.put_end();
  const auto alerts = tell(3);
  ASSERT_THAT(alerts, SizeIs(2));
  EXPECT_EQ(alerts[0].rule->name, "GradvaneTrainingStalled");
  EXPECT_EQ(alerts[0].ends_at, kBegin + 3 + 900);
  EXPECT_EQ(alerts[1].rule->name, "GradvaneTrainingRunTerminated");
  EXPECT_EQ(alerts[1].description, "SIGTERM");
  EXPECT_EQ(alerts[1].ends_at, kBegin + 3 + 900);
}

TEST_F(Book, SurvivesTimesThatAreNone) {
  open(1, IncidentClass::stalled, std::numeric_limits<double>::quiet_NaN());
  close(1, IncidentClass::stalled, 0, std::numeric_limits<double>::quiet_NaN());
  close(2, IncidentClass::loss_spike, std::numeric_limits<double>::infinity(), 3);
  EXPECT_LE(tell(1).size(), 2U);
  EXPECT_EQ(book_.untold(), 0U);
}

}  // namespace
}  // namespace gradvane::exporters
