#include "detectors/rules/agreement_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using testing::IsEmpty;
using testing::SizeIs;

class AgreementRulesTest : public test::FakeSteps {};

TEST_F(AgreementRulesTest, ALostAgreementIsOneIncidentThatStaysOpen) {
  AgreementRules rules(3, book_, collect());
  rules.tell_open(collect());
  EXPECT_THAT(reports_, IsEmpty());
  rules.lost("rank 1 did not answer within 60 s", Moment(120, 1000, 50));
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::agreement_lost);
  EXPECT_EQ(reports_[0].rank, 3);
  EXPECT_EQ(reports_[0].first_step, 120);
  EXPECT_FALSE(reports_[0].closed_at);
  EXPECT_EQ(
      reports_[0].evidence,
      "After step 120: ranks do not agree on steps any more, and each decides alone: rank 1 did "
      "not answer within 60 s.");
  rules.tell_open(collect());
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].id, reports_[0].id);
}

TEST_F(AgreementRulesTest, IsLeftOutIfTheClassIsNotJudged) {
  book_ = IncidentBook(Judged{});
  AgreementRules rules(0, book_, collect());
  rules.lost("no memory", Moment(1, 1000, 50));
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
