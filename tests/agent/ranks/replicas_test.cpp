#include "agent/ranks/replicas.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

namespace gradvane::agent::ranks {
namespace {

using testing::ElementsAre;

/// ReplicaRanks with one number for each parameter. Each has books of its own, which must say the same.
class ReplicaRanks {
 public:
  ReplicaRanks(int every, const std::vector<std::vector<int>>& first)
      : weights(first), books_(first.size(), Replicas(every)) {}

  std::optional<Replicas::Finding> exchange(int optimizer = 0) {
    std::vector<RankRecord> all;
    ++step_;
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
      RankRecord record;
      record.run_step = step_;
      record.params = static_cast<std::int32_t>(weights[rank].size());
      if (const auto range = books_[rank].wanted(optimizer)) {
        ++fingerprints;
        record.fingerprint = sum(weights[rank], *range);
      }
      if (!is_readable) record.fingerprint.reset();
      all.push_back(record);
    }
    const auto found = books_.front().compare(optimizer, all);
    for (std::size_t rank = 1; rank < books_.size(); ++rank) {
      const auto other = books_[rank].compare(optimizer, all);
      EXPECT_EQ(found.has_value(), other.has_value());
      if (found && other) {
        EXPECT_EQ(found->differ, other->differ);
        EXPECT_EQ(found->param, other->param);
        EXPECT_EQ(found->others, other->others);
      }
    }
    return found;
  }

  /// The first news within `exchanges`.
  std::optional<Replicas::Finding> news(int exchanges) {
    for (int i = 0; i < exchanges; ++i)
      if (auto found = exchange()) return found;
    return std::nullopt;
  }

  std::vector<std::vector<int>> weights;
  bool is_readable = true;
  int fingerprints = 0;

 private:
  static std::uint64_t sum(const std::vector<int>& values, const ParamRange& range) {
    std::uint64_t code = 7;
    const auto count = static_cast<std::int32_t>(values.size());
    for (std::int32_t i = std::min(range.begin, count); i < std::min(range.end, count); ++i)
      code = code * 1000003 + static_cast<std::uint64_t>(values[static_cast<std::size_t>(i)]);
    return code;
  }

  std::vector<Replicas> books_;
  std::int64_t step_ = 0;
};

std::vector<int> numbers(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Replicas, FindsTheRankAndTheParameterWhereverItIsAndHoweverManyThereAre) {
  for (const int count : {1, 2, 3, 7, 64, 1000}) {
    for (const int at : {0, count / 3, count - 1}) {
      ReplicaRanks ranks(5, {numbers(count), numbers(count), numbers(count)});
      EXPECT_FALSE(ranks.news(8));
      ++ranks.weights[2][static_cast<std::size_t>(at)];
      const auto found = ranks.news(5 + 11);
      ASSERT_TRUE(found) << count << " parameters, number " << at;
      EXPECT_TRUE(found->differ);
      EXPECT_EQ(found->param, at) << "of " << count;
      EXPECT_EQ(found->rank, 0);
      EXPECT_EQ(found->equal_at, 6) << "the second comparison";
      EXPECT_THAT(found->others, ElementsAre(2));
    }
  }
}

TEST(Replicas, OfSeveralParametersThatDifferItNamesTheFirst) {
  ReplicaRanks ranks(1, {numbers(100), numbers(100)});
  (void)ranks.exchange();
  for (std::size_t at : {30U, 31U, 77U}) ++ranks.weights[0][at];
  EXPECT_EQ(ranks.news(20)->param, 30);
}

TEST(Replicas, SaysItOnceAndSaysWhenItIsOver) {
  ReplicaRanks ranks(2, {numbers(4), numbers(4)});
  (void)ranks.exchange();
  ++ranks.weights[1][0];
  ASSERT_TRUE(ranks.news(10));
  EXPECT_FALSE(ranks.news(50)) << "it still differs";
  --ranks.weights[1][0];
  const auto over = ranks.news(2);
  ASSERT_TRUE(over);
  EXPECT_FALSE(over->differ);
  EXPECT_FALSE(ranks.news(50));
  ++ranks.weights[0][3];
  EXPECT_EQ(ranks.news(10)->param, 3) << "the second time";
}

TEST(Replicas, ADifferenceThatGoesDuringTheSearchIsReportedWithoutAName) {
  ReplicaRanks ranks(1, {numbers(64), numbers(64)});
  (void)ranks.exchange();
  ++ranks.weights[1][40];
  EXPECT_FALSE(ranks.exchange());
  --ranks.weights[1][40];
  const auto found = ranks.news(10);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->differ);
  EXPECT_FALSE(found->param);
  EXPECT_THAT(found->others, ElementsAre(1));
  EXPECT_FALSE(ranks.news(10)->differ);
}

TEST(Replicas, RanksThatBeganWithOtherWeightsAreNoReplicas) {
  // Two stages of a pipeline, two replicas of each.
  ReplicaRanks ranks(1, {numbers(6), numbers(9), numbers(6), numbers(9)});
  EXPECT_FALSE(ranks.news(20));
  ++ranks.weights[3][8];
  const auto found = ranks.news(10);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->param, 8);
  EXPECT_EQ(found->rank, 1);
  EXPECT_THAT(found->others, ElementsAre(3));
}

TEST(Replicas, ComparesOnlyEveryFewExchangesOfAnOptimizer) {
  ReplicaRanks ranks(10, {numbers(3), numbers(3)});
  EXPECT_FALSE(ranks.news(25));
  EXPECT_EQ(ranks.fingerprints, 2 * 3);
  (void)ranks.exchange(1);
  EXPECT_EQ(ranks.fingerprints, 2 * 4) << "the first of another optimizer";
  ReplicaRanks off(0, {numbers(3), numbers(4)});
  EXPECT_FALSE(off.news(25));
  EXPECT_EQ(off.fingerprints, 0);
}

TEST(Replicas, WhereOneCannotBeReadNothingIsSaid) {
  ReplicaRanks ranks(1, {numbers(3), numbers(3)});
  (void)ranks.exchange();
  ++ranks.weights[0][0];
  ranks.is_readable = false;
  EXPECT_FALSE(ranks.news(10));
  ranks.is_readable = true;
  EXPECT_TRUE(ranks.news(10)) << "the control";
}

}  // namespace
}  // namespace gradvane::agent::ranks
