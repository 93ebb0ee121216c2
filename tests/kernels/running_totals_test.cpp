#include "kernels/running_totals.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/indices.hpp"

namespace gradvane::kernels {
namespace {

using test::kGrad;
using test::kLoss;
using test::kNan;
using test::kNegInf;
using test::kPosInf;
using test::kWeight;

TensorStats clean() {
  TensorStats stats;
  stats.numel = 100;
  return stats;
}

TensorStats bad(std::int64_t nan, std::int64_t pos_inf, std::int64_t neg_inf, std::int64_t first,
                NonfiniteKind kind) {
  TensorStats stats = clean();
  stats.nan = nan;
  stats.pos_inf = pos_inf;
  stats.neg_inf = neg_inf;
  stats.first_nonfinite = first;
  stats.first_kind = static_cast<std::int16_t>(kind);
  return stats;
}

void add(RunningTotals& totals, std::uint64_t sequence, const std::vector<Site>& sites,
         const std::vector<TensorStats>& stats) {
  accumulate_totals(totals, sequence, 7, sites.data(), stats.data(),
                    static_cast<std::int64_t>(stats.size()));
}

TEST(RunningTotals, StayAtZeroForCleanReads) {
  RunningTotals totals;
  add(totals, 1, {Site::loss, Site::grad, Site::weight}, {clean(), clean(), clean()});
  for (int site = 0; site < kCountedSites; ++site) {
    EXPECT_EQ(totals.reads[site], 0);
    EXPECT_EQ(totals.first[site].sequence, 0u);
    EXPECT_EQ(totals.first[site].tensor, -1);
    EXPECT_EQ(totals.first[site].kind, -1);
    for (const std::int64_t count : totals.elements[site]) EXPECT_EQ(count, 0);
  }
}

TEST(RunningTotals, CountElementsByKindAndReadsOncePerRead) {
  RunningTotals totals;
  add(totals, 1, {Site::grad, Site::grad},
      {bad(2, 0, 1, 4, NonfiniteKind::nan), bad(1, 5, 0, 0, NonfiniteKind::pos_inf)});
  add(totals, 2, {Site::grad, Site::grad}, {clean(), bad(0, 1, 0, 9, NonfiniteKind::pos_inf)});
  add(totals, 3, {Site::grad, Site::grad}, {clean(), clean()});
  EXPECT_EQ(totals.elements[kGrad][kNan], 3);
  EXPECT_EQ(totals.elements[kGrad][kPosInf], 6);
  EXPECT_EQ(totals.elements[kGrad][kNegInf], 1);
  EXPECT_EQ(totals.reads[kGrad], 2);
  EXPECT_EQ(totals.reads[kLoss], 0);
  EXPECT_EQ(totals.reads[kWeight], 0);
}

TEST(RunningTotals, KeepTheFirstBadElementOfEachSiteForGood) {
  RunningTotals totals;
  add(totals, 5, {Site::weight, Site::grad, Site::grad},
      {clean(), clean(), bad(1, 1, 0, 33, NonfiniteKind::pos_inf)});
  add(totals, 6, {Site::weight, Site::grad, Site::grad},
      {bad(9, 0, 0, 0, NonfiniteKind::nan), bad(9, 0, 0, 0, NonfiniteKind::nan), clean()});
  const FirstBad& grad = totals.first[kGrad];
  EXPECT_EQ(grad.sequence, 5u);
  EXPECT_EQ(grad.plan_id, 7u);
  EXPECT_EQ(grad.tensor, 2);
  EXPECT_EQ(grad.element, 33);
  EXPECT_EQ(grad.kind, kPosInf);
  const FirstBad& weight = totals.first[kWeight];
  EXPECT_EQ(weight.sequence, 6u);
  EXPECT_EQ(weight.tensor, 0);
  EXPECT_EQ(totals.first[kLoss].sequence, 0u);
}

TEST(RunningTotals, TakeNoNoticeOfACarriedScalar) {
  RunningTotals totals;
  add(totals, 1, {Site::scalar}, {bad(1, 0, 0, 0, NonfiniteKind::nan)});
  for (int site = 0; site < kCountedSites; ++site) EXPECT_EQ(totals.reads[site], 0);
}

}  // namespace
}  // namespace gradvane::kernels
