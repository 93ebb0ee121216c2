#include "detectors/incident_slot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>
#include <vector>

namespace gradvane::detectors {
namespace {

using record::Incident;
using record::IncidentClass;
using testing::IsEmpty;
using testing::SizeIs;

class IncidentSlotTest : public testing::Test {
 protected:
  explicit IncidentSlotTest(IncidentSlot::Rule rule = {3, 2})
      : slot_(IncidentClass::nonfinite_grad, 5, rule, book_) {}

  /// "b": bad, "g": good; one step each.
  void judge(std::string_view steps) { at(0, steps); }
  /// All of them at one moment of the monotonic clock.
  void at(double seconds, std::string_view steps) {
    for (const char step : steps) {
      record::StepRecord record;
      record.run_step = ++step_;
      record.time = wall_ + static_cast<double>(step_);
      record.monotonic = seconds;
      slot_.judge(
          step == 'b', record, [](Incident& incident) { incident.evidence = "seen"; },
          [this](const Incident& incident) { reports_.push_back(incident); });
    }
  }

  IncidentBook book_;
  IncidentSlot slot_;
  std::int64_t step_ = 0;
  double wall_ = 100;
  std::vector<Incident> reports_;
};

TEST_F(IncidentSlotTest, ItOpensAfterSoManyInARowAndRemembersTheFirst) {
  judge("gbbgbb");
  EXPECT_THAT(reports_, IsEmpty()) << "a good one in between starts the count anew";
  judge("b");
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].first_step, 5);
  EXPECT_EQ(reports_[0].last_step, 7);
  EXPECT_EQ(reports_[0].steps, 3);
  EXPECT_EQ(reports_[0].rank, 5);
  EXPECT_EQ(reports_[0].opened_at, 107);
  EXPECT_EQ(reports_[0].evidence, "seen");
  EXPECT_TRUE(slot_.is_open());
}

TEST_F(IncidentSlotTest, HoweverLongItLastsItIsOneWithACount) {
  judge("bbb");
  for (int i = 0; i < 10'000; ++i) judge("b");
  EXPECT_THAT(reports_, SizeIs(1));
  judge("gbgg");
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].id, reports_[0].id);
  EXPECT_EQ(reports_[1].steps, 10'004);
  EXPECT_EQ(reports_[1].last_step, 10'005);
  EXPECT_EQ(reports_[1].closed_at, 100 + 10'007);
  EXPECT_FALSE(slot_.is_open());
}

TEST_F(IncidentSlotTest, TheNextOneHasANumberOfItsOwn) {
  judge("bbbggbbb");
  ASSERT_THAT(reports_, SizeIs(3));
  EXPECT_EQ(reports_[0].id, 1);
  EXPECT_EQ(reports_[2].id, 2);
  EXPECT_EQ(reports_[2].steps, 3);
}

TEST_F(IncidentSlotTest, WhereItsEvidenceCannotBeGatheredNothingHasOpened) {
  IncidentSlot slot(IncidentClass::nonfinite_loss, 0, {1, 1}, book_);
  const auto fail = [](Incident&) { throw std::runtime_error("no memory"); };
  const auto report = [this](const Incident& incident) { reports_.push_back(incident); };
  EXPECT_THROW(slot.judge(true, {}, fail, report), std::runtime_error);
  EXPECT_FALSE(slot.is_open());
  slot.judge(true, {}, [](Incident&) {}, report);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].id, 1) << "no number was lost";
}

class CooldownTest : public IncidentSlotTest {
 protected:
  CooldownTest() : IncidentSlotTest({1, 2, 60}) {}
};

TEST_F(CooldownTest, OneThatComesBackSoonIsTheSameIncident) {
  at(0, "bbgg");  // closes at 0 s
  at(59.9, "b");
  ASSERT_THAT(reports_, SizeIs(3));
  EXPECT_EQ(reports_[2].id, 1);
  EXPECT_EQ(reports_[2].first_step, 1);
  EXPECT_EQ(reports_[2].last_step, 5);
  EXPECT_EQ(reports_[2].steps, 3);
  EXPECT_EQ(reports_[2].reopened, 1);
  EXPECT_FALSE(reports_[2].closed_at);
  at(70, "gg");
  ASSERT_THAT(reports_, SizeIs(4));
  EXPECT_TRUE(reports_[3].closed_at);
  at(129, "bgg");
  EXPECT_EQ(reports_.back().reopened, 2) << "counted from when it last closed";
}

TEST_F(CooldownTest, AfterTheCooldownItIsAnother) {
  at(0, "bgg");
  at(60, "b");
  ASSERT_THAT(reports_, SizeIs(3));
  EXPECT_EQ(reports_[2].id, 2);
  EXPECT_EQ(reports_[2].reopened, 0);
}

TEST_F(CooldownTest, AJumpOfTheWallClockDoesNotMatter) {
  at(0, "bgg");
  wall_ += 86'400;
  at(1, "b");
  EXPECT_EQ(reports_.back().id, 1);
}

TEST_F(CooldownTest, OneThatFlickersForAnHourIsOneIncident) {
  for (int i = 0; i < 3600; ++i) at(i, "bgg");
  EXPECT_EQ(reports_.front().id, reports_.back().id);
  EXPECT_EQ(reports_.back().steps, 3600);
}

TEST_F(IncidentSlotTest, ItCanBeClosedAtOnceAndTheRowBeginsAnew) {
  judge("bbb");
  slot_.close({9, 500, 0}, [this](const Incident& incident) { reports_.push_back(incident); });
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].closed_at, 500);
  judge("bb");
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST(IncidentSlotOfAClassThatIsNotJudged, NeverOpens) {
  Judged judged = default_judged();
  judged[index_of(IncidentClass::loss_spike)] = false;
  IncidentBook book(judged);
  IncidentSlot spike(IncidentClass::loss_spike, 0, {1, 1}, book);
  IncidentSlot divergence(IncidentClass::loss_divergence, 0, {1, 1}, book);
  std::vector<Incident> reports;
  const Report report = [&](const Incident& incident) { reports.push_back(incident); };
  for (IncidentSlot* slot : {&spike, &divergence})
    slot->judge(true, {1, 100, 1}, [](Incident& /*opened*/) {}, report);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(reports[0].kind, IncidentClass::loss_divergence);
  EXPECT_EQ(reports[0].id, 1) << "what was not judged took no number";
  EXPECT_FALSE(spike.is_judged() || spike.is_open());
}

}  // namespace
}  // namespace gradvane::detectors
