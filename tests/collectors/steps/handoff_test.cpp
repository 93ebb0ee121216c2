#include "collectors/steps/handoff.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace gradvane::collectors {
namespace {

using kernels::SlotHeader;
using kernels::TensorStats;

std::shared_ptr<const ReadPlan> plan_with(std::uint64_t id) {
  auto plan = std::make_shared<ReadPlan>();
  plan->id = id;
  auto model = std::make_shared<record::ModelInfo>();
  model->id = 100 + id;
  plan->model = std::move(model);
  return plan;
}

void set_plan(Handoff& handoff, std::uint64_t id, std::size_t entries) {
  const std::array plans{plan_with(id)};
  handoff.set_plans(plans, entries);
}

/// Entries whose every number follows from `number`, so that a torn or misplaced slot shows.
std::vector<TensorStats> entries_of(std::uint64_t number, std::size_t entries) {
  std::vector<TensorStats> stats(entries);
  for (std::size_t i = 0; i < entries; ++i) {
    stats[i].numel = static_cast<std::int64_t>(1000 * number + i);
    stats[i].sum = static_cast<double>(number);
    stats[i].sum_sq = static_cast<double>(i);
    stats[i].abs_max = static_cast<double>(number + i);
  }
  return stats;
}

std::uint64_t publish(Handoff& handoff, std::uint64_t plan, const std::vector<TensorStats>& stats) {
  return handoff.publish(plan, std::vector<kernels::Site>(stats.size(), kernels::Site::grad),
                         stats);
}

StepFacts facts_of(std::int64_t step) {
  StepFacts facts;
  facts.step = facts.run_step = step;
  facts.time = static_cast<double>(step) / 2;
  facts.lr.fill(static_cast<double>(step));
  facts.samples = step;
  return facts;
}

bool hangs_together(const StepFacts& facts) {
  return facts.run_step == facts.step && facts.samples == facts.step &&
         facts.time == static_cast<double>(facts.step) / 2 &&
         std::ranges::all_of(facts.lr, [&](double lr) { return lr == facts.lr[0]; }) &&
         facts.lr[0] == static_cast<double>(facts.step);
}

TEST(Handoff, StepsComeOutInTheOrderInWhichTheyWentIn) {
  Handoff handoff(8);
  StepFacts facts;
  EXPECT_FALSE(handoff.next(facts).found);
  for (std::int64_t step = 1; step <= 10; ++step) handoff.publish(facts_of(step));
  EXPECT_EQ(handoff.steps_published(), 10U);
  for (std::int64_t step = 1; step <= 10; ++step) {
    EXPECT_EQ(handoff.steps_taken(), static_cast<std::uint64_t>(step - 1));
    const Handoff::NextFacts next = handoff.next(facts);
    ASSERT_TRUE(next.found);
    EXPECT_EQ(next.lost, 0U);
    EXPECT_EQ(facts.step, step);
    EXPECT_TRUE(hangs_together(facts));
  }
  EXPECT_FALSE(handoff.next(facts).found);
  EXPECT_EQ(handoff.steps_taken(), 10U);
}

TEST(Handoff, ASlowWorkerLosesTheOldestStepsAndKnowsHowMany) {
  Handoff handoff(8);
  constexpr std::int64_t kSteps = 5 * Handoff::kFactSlots + 17;
  for (std::int64_t step = 1; step <= kSteps; ++step) handoff.publish(facts_of(step));
  StepFacts facts;
  std::uint64_t lost = 0;
  std::uint64_t taken = 0;
  for (auto next = handoff.next(facts); next.found; next = handoff.next(facts)) {
    lost += next.lost;
    ++taken;
    EXPECT_EQ(facts.step, static_cast<std::int64_t>(lost + taken));
  }
  EXPECT_EQ(facts.step, kSteps) << "the newest is there";
  EXPECT_EQ(taken, static_cast<std::uint64_t>(Handoff::kFactSlots));
  EXPECT_EQ(lost + taken, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(handoff.steps_taken(), handoff.steps_published());
}

TEST(Handoff, ReadsAreFoundByTheirNumberUntilTheyAreOverwritten) {
  Handoff handoff(4);
  set_plan(handoff, 1, 3);
  for (std::uint64_t n = 1; n <= 6; ++n) EXPECT_EQ(publish(handoff, 1, entries_of(n, 3)), n);
  SlotHeader header;
  std::vector<TensorStats> stats;
  for (const std::uint64_t gone : {1U, 2U}) EXPECT_FALSE(handoff.read(gone, header, stats)) << gone;
  for (std::uint64_t n = 3; n <= 6; ++n) {
    ASSERT_TRUE(handoff.read(n, header, stats)) << n;
    EXPECT_EQ(header.sequence, n);
    EXPECT_EQ(header.plan_id, 1U);
    EXPECT_EQ(stats, entries_of(n, 3));
  }
  EXPECT_FALSE(handoff.read(7, header, stats)) << "not published yet";
  EXPECT_FALSE(handoff.read(0, header, stats)) << "0 stands for no read";
}

TEST(Handoff, AReadThatIsLostStaysInTheTotals) {
  Handoff handoff(2);
  set_plan(handoff, 1, 1);
  TensorStats bad;
  bad.numel = 4;
  bad.nan = 3;
  bad.first_nonfinite = 1;
  bad.first_kind = 0;
  publish(handoff, 1, {bad});
  for (std::uint64_t n = 2; n <= 50; ++n) publish(handoff, 1, entries_of(n, 1));
  SlotHeader header;
  std::vector<TensorStats> stats;
  ASSERT_FALSE(handoff.read(1, header, stats));
  ASSERT_TRUE(handoff.read(50, header, stats));
  const auto grad = static_cast<std::size_t>(kernels::Site::grad);
  EXPECT_EQ(header.totals.elements[grad][0], 3);
  EXPECT_EQ(header.totals.reads[grad], 1);
  EXPECT_EQ(header.totals.first[grad].sequence, 1U);
}

TEST(Handoff, GrowthKeepsOldSlotsReadableAndNumbersAndTotalsGoOn) {
  Handoff handoff(8);
  set_plan(handoff, 1, 2);
  TensorStats bad;
  bad.numel = 1;
  bad.pos_inf = 1;
  bad.first_nonfinite = 0;
  bad.first_kind = 1;
  publish(handoff, 1, {bad, bad});
  for (std::uint64_t n = 2; n <= 5; ++n) publish(handoff, 1, entries_of(n, 2));
  set_plan(handoff, 2, 50);
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_FALSE(handoff.read(6, header, stats)) << "in neither ring yet";
  for (std::uint64_t n = 6; n <= 8; ++n) EXPECT_EQ(publish(handoff, 2, entries_of(n, 50)), n);

  for (std::uint64_t n = 2; n <= 8; ++n) {
    ASSERT_TRUE(handoff.read(n, header, stats)) << n;
    EXPECT_EQ(header.plan_id, n <= 5 ? 1U : 2U);
    EXPECT_EQ(stats, entries_of(n, n <= 5 ? 2 : 50));
    EXPECT_EQ(header.totals.elements[static_cast<std::size_t>(kernels::Site::grad)][1], 2);
  }
}

TEST(Handoff, GrowthBeforeTheFirstReadAndTwiceInARowWorks) {
  Handoff handoff(4);
  for (const std::size_t entries : {1U, 5U, 9U}) set_plan(handoff, entries, entries);
  EXPECT_EQ(publish(handoff, 9, entries_of(1, 9)), 1U);
  set_plan(handoff, 10, 20);
  set_plan(handoff, 11, 30);
  EXPECT_EQ(publish(handoff, 11, entries_of(2, 30)), 2U);
  SlotHeader header;
  std::vector<TensorStats> stats;
  ASSERT_TRUE(handoff.read(1, header, stats));
  EXPECT_EQ(stats, entries_of(1, 9));
  ASSERT_TRUE(handoff.read(2, header, stats));
  EXPECT_EQ(stats, entries_of(2, 30));
}

TEST(Handoff, PlansThatNeedNoMoreRoomShareTheRing) {
  Handoff handoff(4);
  set_plan(handoff, 1, 10);
  publish(handoff, 1, entries_of(1, 10));
  for (std::uint64_t id = 2; id <= 40; ++id) set_plan(handoff, id, 1 + id % 10);
  publish(handoff, 40, entries_of(2, 1));
  SlotHeader header;
  std::vector<TensorStats> stats;
  ASSERT_TRUE(handoff.read(1, header, stats));
  EXPECT_EQ(stats, entries_of(1, 10));
  ASSERT_TRUE(handoff.read(2, header, stats));
  EXPECT_EQ(stats, entries_of(2, 1));
}

TEST(Handoff, AFewOldRingsAreKeptAndTheOldestGoesFirst) {
  Handoff handoff(4);
  for (std::uint64_t n = 1; n <= 10; ++n) {
    set_plan(handoff, n, static_cast<std::size_t>(n));
    publish(handoff, n, entries_of(n, static_cast<std::size_t>(n)));
  }
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_FALSE(handoff.read(1, header, stats));
  ASSERT_TRUE(handoff.read(7, header, stats));
  EXPECT_EQ(stats, entries_of(7, 7));
  ASSERT_TRUE(handoff.read(10, header, stats));
}

TEST(Handoff, APlanIsKnownWhileItIsInUseAndWhileAReadThatNamesItIsThere) {
  Handoff handoff(4);
  EXPECT_EQ(handoff.newest_model(), nullptr);
  EXPECT_EQ(handoff.plan(1), nullptr);
  set_plan(handoff, 1, 1);
  publish(handoff, 1, entries_of(1, 1));
  for (std::uint64_t id = 2; id <= 100; ++id) set_plan(handoff, id, 1);
  ASSERT_NE(handoff.plan(100), nullptr);
  EXPECT_EQ(handoff.plan(100)->id, 100U);
  EXPECT_NE(handoff.plan(1), nullptr) << "the read of it can still be had";
  EXPECT_EQ(handoff.plan(50), nullptr) << "nothing was ever read by it";
  EXPECT_EQ(handoff.plans_kept(), 2U);
  EXPECT_EQ(handoff.newest_model()->id, 200U);
  for (std::uint64_t n = 2; n <= 5; ++n) publish(handoff, 100, entries_of(n, 1));
  set_plan(handoff, 101, 1);
  EXPECT_EQ(handoff.plan(1), nullptr);
  EXPECT_NE(handoff.plan(100), nullptr);
}

TEST(Handoff, TheOldestOfManyOptimizersIsKnownAsLongAsTheNewest) {
  constexpr std::uint64_t kMany = 2000;
  Handoff handoff(8);
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<const ReadPlan>> plans;
    for (std::uint64_t n = 1; n <= kMany; ++n) plans.push_back(plan_with(round * kMany + n));
    handoff.set_plans(plans, 2);
    for (const auto& plan : plans) ASSERT_EQ(handoff.plan(plan->id), plan);
    for (std::uint64_t n = 0; n < 5; ++n) publish(handoff, plans[n]->id, entries_of(n, 2));
    EXPECT_LE(handoff.plans_kept(), kMany + 8) << "and replaced ones are as many as slots can name";
  }
}

TEST(Handoff, WhereDevicesReadSomeReplacedPlansAreKeptForThem) {
  Handoff handoff(4);
  auto source = std::make_shared<DeviceSource>();
  source->id = 1;
  handoff.add_sources({source});
  for (std::uint64_t id = 1; id <= 200; ++id) set_plan(handoff, id, 1);
  EXPECT_NE(handoff.plan(150), nullptr) << "what devices have read by it is not known here";
  EXPECT_EQ(handoff.plan(1), nullptr);
  EXPECT_LE(handoff.plans_kept(), 70U);
}

TEST(Handoff, ManyEntriesGetFewerSlotsInsteadOfMoreMemory) {
  constexpr int kAsked = 64;
  constexpr std::size_t kMost = 64 << 20;
  constexpr std::size_t kEntries = 20'000;
  Handoff handoff(kAsked);
  set_plan(handoff, 1, kEntries);
  const std::size_t slot = kEntries * kernels::kRecordBytes;
  for (std::uint64_t n = 1; n <= kAsked; ++n) publish(handoff, 1, entries_of(n, kEntries));
  SlotHeader header;
  std::vector<TensorStats> stats;
  std::size_t kept = 0;
  for (std::uint64_t n = 1; n <= kAsked; ++n) kept += handoff.read(n, header, stats) ? 1U : 0U;
  EXPECT_GE(kept, 2U);
  EXPECT_LE(kept * slot, kMost);
  EXPECT_GE((kept + 2) * slot, kMost) << "and no fewer than needed";
  ASSERT_TRUE(handoff.read(kAsked, header, stats));
  EXPECT_EQ(stats, entries_of(kAsked, kEntries));
}

/// A training thread and a worker at full speed, the ring growing under them. Under TSan this is the
/// test of the locks; the worker sees no torn step, and every step is either taken or counted as lost.
TEST(Handoff, AWorkerBesideATrainingThreadNeverSeesATornStepAndMissesNoneUncounted) {
  Handoff handoff(16);
  constexpr std::int64_t kSteps = 20'000;
  set_plan(handoff, 1, 2);
  std::atomic<bool> done = false;

  std::jthread training([&] {
    std::size_t entries = 2;
    std::uint64_t plan = 1;
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      if (step % 5000 == 0) set_plan(handoff, ++plan, entries *= 2);
      StepFacts facts = facts_of(step);
      facts.reads.set_on_host(
          SlotRole::gradients,
          publish(handoff, plan, entries_of(static_cast<std::uint64_t>(step), entries)));
      handoff.publish(facts);
      if (step % 64 == 0) std::this_thread::yield();
    }
    done = true;
  });

  std::uint64_t lost = 0;
  std::uint64_t taken = 0;
  std::uint64_t found = 0;
  StepFacts facts;
  SlotHeader header;
  std::vector<TensorStats> stats;
  for (;;) {
    const bool last_round = done;
    for (auto next = handoff.next(facts); next.found; next = handoff.next(facts)) {
      lost += next.lost;
      ++taken;
      ASSERT_TRUE(hangs_together(facts)) << facts.step;
      ASSERT_EQ(facts.step, static_cast<std::int64_t>(lost + taken));
      const std::uint64_t sequence = facts.reads.begin()->token;
      if (!handoff.read(sequence, header, stats)) continue;
      ++found;
      ASSERT_EQ(header.sequence, sequence);
      ASSERT_EQ(stats, entries_of(static_cast<std::uint64_t>(facts.step), stats.size()));
      ASSERT_NE(handoff.plan(header.plan_id), nullptr);
      ASSERT_NE(handoff.newest_model(), nullptr);
    }
    if (last_round) break;
    std::this_thread::yield();
  }
  training.join();
  EXPECT_EQ(lost + taken, static_cast<std::uint64_t>(kSteps));
  EXPECT_GT(found, 0U);
}

}  // namespace
}  // namespace gradvane::collectors
