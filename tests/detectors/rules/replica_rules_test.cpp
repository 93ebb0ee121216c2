#include "detectors/rules/replica_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using testing::IsEmpty;
using testing::SizeIs;

class ReplicaRulesTest : public test::FakeSteps {
 protected:
  static record::ReplicaComparison apart(std::vector<std::int32_t> others, std::string param) {
    return {.run_step = 121,
            .differ = true,
            .param = std::move(param),
            .others = std::move(others),
            .rank = 0,
            .equal_at = 101};
  }
};

TEST_F(ReplicaRulesTest, ReplicasThatDifferAreOneIncidentUntilTheyAreEqual) {
  ReplicaRules rules(3, book_, collect());
  rules.compared({.run_step = 20}, Moment(20, 900, 40));
  EXPECT_THAT(reports_, IsEmpty());
  rules.compared(apart({2}, "layers.3.weight"), Moment(121, 1000, 50));
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::replica_mismatch);
  EXPECT_EQ(reports_[0].rank, 3);
  EXPECT_EQ(reports_[0].last_good_step, 100);
  EXPECT_EQ(reports_[0].evidence,
            "Step 121: rank 2 has other weights than rank 0; layers.3.weight is the first that "
            "differs. They were equal at step 101.");
  rules.compared({.run_step = 220}, Moment(220, 1100, 150));
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].id, reports_[0].id);
  EXPECT_EQ(reports_[1].closed_at, 1100);
}

TEST_F(ReplicaRulesTest, NamesNoMoreThanAFewRanksAndSaysIfTheParameterIsNotKnown) {
  ReplicaRules rules(0, book_, collect());
  rules.compared(apart({1, 2, 5, 6, 7, 9}, ""), Moment(121, 1000, 50));
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].evidence,
            "Step 121: ranks 1, 2, 5, 6 and 2 more have other weights than rank 0; which parameter "
            "differs is not known. They were equal at step 101.");
}

TEST_F(ReplicaRulesTest, IsLeftOutIfTheClassIsNotJudged) {
  book_ = IncidentBook(Judged{});
  ReplicaRules rules(0, book_, collect());
  rules.compared(apart({1}, "weight"), Moment(1, 1000, 50));
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
