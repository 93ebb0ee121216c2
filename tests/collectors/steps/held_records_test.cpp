#include "collectors/steps/held_records.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

#include "collectors/steps/norm_exchange.hpp"

namespace gradvane::collectors {
namespace {

record::StepRecord record_of(std::int64_t step, bool is_sharded = true) {
  record::StepRecord record;
  record.step = step;
  if (is_sharded) record.norm_contribution = 3;
  return record;
}

HeldRecords::Held held(const record::StepRecord& record) { return {record, {}, {}, {}, {}}; }

TEST(HeldRecords, NothingWaitsWhereThereIsNobodyToWaitFor) {
  NormExchange closed;
  EXPECT_FALSE(HeldRecords(&closed).must_hold(record_of(1)));
  EXPECT_FALSE(HeldRecords(nullptr).must_hold(record_of(1)));
  closed.open();
  EXPECT_TRUE(HeldRecords(&closed).must_hold(record_of(1)));
  EXPECT_FALSE(HeldRecords(&closed).must_hold(record_of(1, false)));
}

TEST(HeldRecords, ARecordIsTakenOnceItsNormHasComeAndInOrder) {
  NormExchange exchange;
  exchange.open();
  HeldRecords records(&exchange);
  records.hold(held(record_of(1)));
  EXPECT_TRUE(records.must_hold(record_of(2, false))) << "order is kept";
  records.hold(held(record_of(2, false)));
  records.hold(held(record_of(3)));
  exchange.give(3, 0, 30);
  EXPECT_FALSE(records.next(false)) << "the first one still waits";
  exchange.give(1, 0, 10);
  EXPECT_EQ(records.next(false)->record.grad_norm, 10);
  EXPECT_EQ(records.next(false)->record.step, 2);
  EXPECT_EQ(records.next(false)->record.grad_norm, 30);
  EXPECT_TRUE(records.empty());
}

TEST(HeldRecords, WhatNeverComesIsNotWaitedForAtTheEndOrWhenTheCourierHasGone) {
  NormExchange exchange;
  exchange.open();
  HeldRecords records(&exchange);
  records.hold(held(record_of(1)));
  records.hold(held(record_of(2)));
  EXPECT_FALSE(records.next(false));
  const auto last = records.next(true);
  ASSERT_TRUE(last);
  EXPECT_FALSE(last->record.grad_norm) << "not known: absent";
  exchange.close();
  EXPECT_TRUE(records.next(false));
}

TEST(HeldRecords, NoMoreWaitThanThereIsRoomFor) {
  NormExchange exchange;
  exchange.open();
  HeldRecords records(&exchange);
  constexpr auto kHeld = static_cast<std::int64_t>(HeldRecords::kMostHeld);
  for (std::int64_t step = 1; step <= kHeld; ++step) records.hold(held(record_of(step)));
  EXPECT_FALSE(records.next(false));
  records.hold(held(record_of(kHeld + 1)));
  EXPECT_EQ(records.next(false)->record.step, 1);
  EXPECT_FALSE(records.next(false));
}

TEST(NormExchange, SwitchedOffItNeverOpensAndNothingWaits) {
  NormExchange exchange(/*allowed=*/false);
  EXPECT_FALSE(exchange.open());
  EXPECT_FALSE(exchange.is_open());
  EXPECT_FALSE(HeldRecords(&exchange).must_hold(record_of(1)));
}

TEST(NormExchange, AnErrorClosesItAndIsToldOnce) {
  NormExchange exchange;
  EXPECT_TRUE(exchange.open());
  HeldRecords records(&exchange);
  records.hold(held(record_of(1)));
  exchange.fail();
  EXPECT_FALSE(exchange.is_open());
  EXPECT_TRUE(records.next(false));
  EXPECT_EQ(records.take_failures(), 1);
  EXPECT_EQ(records.take_failures(), 0);
  EXPECT_TRUE(exchange.open()) << "another process group may come";
}

TEST(NormExchange, GivesEachContributionOnceAndForgetsTheOldest) {
  NormExchange exchange;
  exchange.open();
  for (std::int64_t step = 0; step < 2000; ++step) exchange.post({step, 0, 1});
  const auto taken = exchange.take(0);
  ASSERT_EQ(taken.size(), NormExchange::kMostKept);
  EXPECT_EQ(taken.back().step, 1999);
  EXPECT_TRUE(exchange.take(0).empty());
  exchange.give(5, 1, 2);
  EXPECT_FALSE(exchange.collect(5, 0)) << "another optimizer's";
  EXPECT_EQ(exchange.collect(5, 1), 2);
  EXPECT_FALSE(exchange.collect(5, 1));
}

TEST(NormExchange, AWorkerAndACourierMeet) {
  NormExchange exchange;
  exchange.open();
  constexpr std::int64_t kSteps = 2000;
  std::jthread courier([&] {
    std::int64_t carried = 0;
    while (carried < kSteps)
      for (const auto& one : exchange.take(1.0)) {
        exchange.give(one.step, one.optimizer, 2 * one.norm);
        ++carried;
      }
  });
  std::int64_t right = 0;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    exchange.post({step, 0, static_cast<double>(step)});
    std::optional<double> norm;
    while (!norm) norm = exchange.collect(step, 0);
    right += *norm == 2 * static_cast<double>(step) ? 1 : 0;
  }
  EXPECT_EQ(right, kSteps);
}

TEST(NormExchange, ClosingWakesWhoeverWaits) {
  NormExchange exchange;
  exchange.open();
  std::atomic<bool> is_back = false;
  std::jthread courier([&] {
    (void)exchange.take(60);
    is_back = true;
  });
  exchange.close();
  courier.join();
  EXPECT_TRUE(is_back);
}

}  // namespace
}  // namespace gradvane::collectors
