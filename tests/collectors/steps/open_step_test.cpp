#include "collectors/steps/open_step.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace gradvane::collectors {
namespace {

bool add(OpenStep& step, std::int32_t metric, double value) {
  OpenStep::Addition addition(step);
  if (!addition) return false;
  addition.add({.of = LateValue::Of::metric, .metric = metric, .value = value});
  return true;
}

StepFacts facts_of(OpenStep& step, std::uint64_t sequence) {
  StepFacts facts;
  facts.user.fill(std::nan(""));
  step.add_to(sequence, facts);
  return facts;
}

TEST(OpenStep, TakesValuesUntilTheTrainingThreadClosesIt) {
  OpenStep step;
  EXPECT_FALSE(add(step, 0, 1)) << "there is no step yet";
  step.open(1);
  EXPECT_TRUE(step.is_open(1));
  EXPECT_TRUE(step.is_behind_it());
  EXPECT_TRUE(add(step, 0, 1) && add(step, 3, 2) && add(step, 0, 5));
  step.close();
  EXPECT_FALSE(step.is_open(1));
  EXPECT_FALSE(step.is_behind_it());
  EXPECT_FALSE(add(step, 1, 1));

  ASSERT_TRUE(step.close(1)) << "closed already";
  const StepFacts facts = facts_of(step, 1);
  EXPECT_EQ(facts.user[0], 5) << "the latest value counts";
  EXPECT_TRUE(std::isnan(facts.user[1]));
  EXPECT_EQ(facts.user[3], 2);
  EXPECT_EQ(facts.user_count, 4) << "a name may be as new as its value";
}

TEST(OpenStep, TakesNoneOnceTheWorkerHasClosedIt) {
  OpenStep step;
  step.open(7);
  ASSERT_TRUE(step.close(7));
  EXPECT_TRUE(step.is_behind_it()) << "the training thread has seen nothing of the next step";
  EXPECT_FALSE(add(step, 0, 1));
  step.open(8);
  EXPECT_TRUE(add(step, 0, 1)) << "the next step is another matter";
  ASSERT_TRUE(step.close(7));
  EXPECT_TRUE(step.is_open(8)) << "nor is it closed with the one before";
}

TEST(OpenStep, StaysOpenWhileAValueIsBeingAdded) {
  OpenStep step;
  step.open(1);
  {
    OpenStep::Addition addition(step);
    ASSERT_TRUE(static_cast<bool>(addition));
    EXPECT_FALSE(step.close(1));
    EXPECT_TRUE(step.is_open(1));
    EXPECT_TRUE(step.close(2)) << "another one, which is not open";
  }
  EXPECT_TRUE(step.close(1));
}

TEST(OpenStep, EachStepHasItsOwnValuesAndThoseOfALostOneAreGone) {
  OpenStep step;
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    step.open(sequence);
    ASSERT_TRUE(
        add(step, static_cast<std::int32_t>(sequence), 10.0 * static_cast<double>(sequence)));
  }
  step.close();
  EXPECT_EQ(facts_of(step, 1).user[1], 10);
  const StepFacts third = facts_of(step, 3);
  EXPECT_TRUE(std::isnan(third.user[2])) << "the second one's";
  EXPECT_EQ(third.user[3], 30);
  EXPECT_TRUE(std::isnan(third.user[4])) << "the fourth one's";
  EXPECT_EQ(facts_of(step, 4).user[4], 40);
}

TEST(OpenStep, HasALossAndReadsOnADeviceBesidesMetrics) {
  OpenStep step;
  step.open(1);
  {
    OpenStep::Addition addition(step);
    ASSERT_TRUE(static_cast<bool>(addition));
    addition.add({.of = LateValue::Of::loss, .value = 0.5});
    addition.add({.of = LateValue::Of::read, .metric = 1, .read = {SlotRole::user, 3, 42}});
  }
  step.close();
  StepFacts facts;
  facts.reads.set_on_host(SlotRole::gradients, 9);
  step.add_to(1, facts);
  EXPECT_EQ(facts.loop_loss, 0.5);
  ASSERT_TRUE(facts.reads.has_on_devices(SlotRole::user));
  EXPECT_EQ((facts.reads.end() - 1)->token, 42u);
  EXPECT_EQ(facts.reads.begin()->token, 9u);
  EXPECT_EQ(facts.user_count, 2)
      << "the first that was ever logged came behind the step, on a device";
}

/// What the training thread was told is in the step is in it, and nothing else is: whichever thread comes first.
TEST(OpenStep, AWorkerThatClosesMeanwhileMissesNoValueThatWasTaken) {
  constexpr std::uint64_t kSteps = 20'000;
  OpenStep step;
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> judged{0};
  std::vector<int> taken(kSteps + 1);
  std::vector<int> seen(kSteps + 1);
  std::thread worker([&] {
    for (std::uint64_t sequence = 1; sequence <= kSteps; ++sequence) {
      while (opened.load(std::memory_order_acquire) < sequence) std::this_thread::yield();
      while (!step.close(sequence)) std::this_thread::yield();
      const StepFacts facts = facts_of(step, sequence);
      for (std::int32_t metric = 0; metric < 4; ++metric)
        seen[sequence] += std::isnan(facts.user[static_cast<std::size_t>(metric)]) ? 0 : 1;
      judged.store(sequence, std::memory_order_release);
    }
  });
  for (std::uint64_t sequence = 1; sequence <= kSteps; ++sequence) {
    step.open(sequence);
    opened.store(sequence, std::memory_order_release);
    for (std::int32_t metric = 0; metric < 4; ++metric) {
      taken[sequence] += add(step, metric, 1) ? 1 : 0;
      if (sequence % 3 == 0) std::this_thread::yield();
    }
    while (judged.load(std::memory_order_acquire) < sequence) std::this_thread::yield();
  }
  worker.join();
  EXPECT_EQ(taken, seen);
  int parts = 0;
  for (const int values : taken) parts += values > 0 && values < 4 ? 1 : 0;
  EXPECT_GT(parts, 0) << "the worker has never come between: nothing is proven";
}

}  // namespace
}  // namespace gradvane::collectors
