// Steps whose update is left to a device, as the governor counts them.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/governor/skip_rows.hpp"
#include "tests/agent/governor/findings.hpp"

namespace gradvane::agent {
namespace {

using namespace test;

Options on_device(int limit) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_on_device = true;
  options.skip_limit = limit;
  return options;
}

/// Counts steps, of which some are left to the device. Their outcomes come when a test says so.
class DeviceSkips : public testing::Test {
 protected:
  void begin(const Options& options) { governor_ = std::make_unique<Governor>(options); }
  /// Returns which one it is, or -1 if the host has to judge it.
  int leave() {
    const std::int64_t number = governor_->leave_to_device(0, false);
    if (number == 0) return -1;
    StepFinding left;
    left.run_step = ++step_;
    left.is_left = true;
    EXPECT_EQ(governor_->judge(left).verdict, Verdict::take);
    left_.push_back({number, step_});
    return static_cast<int>(left_.size()) - 1;
  }
  Verdict host(bool is_bad) {
    ++step_;
    return governor_->judge(is_bad ? bad_gradient(step_) : good(step_)).verdict;
  }
  void known(int which, bool is_bad) {
    const auto [number, step] = left_[static_cast<std::size_t>(which)];
    governor_->note_device_outcome(0, number, step, is_bad ? Fault::gradient : Fault::none);
  }
  [[nodiscard]] int row() const { return static_cast<int>(governor_->status().skips_in_a_row); }

  std::unique_ptr<Governor> governor_;

 private:
  std::int64_t step_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> left_;
};

TEST_F(DeviceSkips, BehindASkipThatIsKnownTheHostJudgesUntilAStepIsGood) {
  begin(on_device(3));
  known(leave(), true);
  EXPECT_EQ(leave(), -1);
  EXPECT_EQ(host(true), Verdict::skip);
  EXPECT_EQ(leave(), -1);
  EXPECT_EQ(row(), 2);
  EXPECT_EQ(host(false), Verdict::take);
  EXPECT_GE(leave(), 0);
  EXPECT_EQ(row(), 0);
  EXPECT_EQ(governor_->status().skipped_steps, 2);
}

TEST_F(DeviceSkips, ARowOfTheDeviceAndTheHostEscalatesAtTheVeryStep) {
  begin(on_device(3));
  known(leave(), true);
  EXPECT_EQ(host(true), Verdict::skip);
  EXPECT_EQ(host(true), Verdict::stop);
  EXPECT_EQ(governor_->stop_reason(),
            "stopped: step 3, the last of 3 skipped in a row: a gradient is not finite");
}

TEST_F(DeviceSkips, TooManyThatAreKnownTogetherEscalateAtTheNextStepAndTheReasonNamesTheirs) {
  begin(on_device(2));
  const std::array left{leave(), leave(), leave()};
  known(left[0], true);
  known(left[1], true);
  known(left[2], true);
  EXPECT_EQ(host(false), Verdict::stop);
  EXPECT_EQ(governor_->stop_reason(),
            "stopped: step 3, the last of 2 skipped in a row: a gradient is not finite");
}

TEST_F(DeviceSkips, WhatIsKnownLateOfStepsBeforeAGoodOneIsInNoRow) {
  begin(on_device(3));
  const std::array left{leave(), leave(), leave()};
  known(left[0], true);
  EXPECT_EQ(host(false), Verdict::take);
  known(left[1], true);
  known(left[2], true);
  EXPECT_EQ(row(), 0);
  EXPECT_EQ(host(true), Verdict::skip) << "the first one in a row";
  EXPECT_EQ(governor_->status().skipped_steps, 4);
}

TEST_F(DeviceSkips, WhatIsKnownLateOfStepsBeforeABadOneIsInItsRow) {
  begin(on_device(3));
  const std::array left{leave(), leave()};
  known(left[0], true);
  EXPECT_EQ(host(true), Verdict::skip);
  known(left[1], true);
  EXPECT_EQ(row(), 3);
  EXPECT_EQ(host(false), Verdict::stop);

  begin(on_device(3));
  const std::array again{leave(), leave()};
  known(again[0], true);
  EXPECT_EQ(host(true), Verdict::skip);
  known(again[1], false);
  EXPECT_EQ(row(), 1) << "a good step lay between the two";
}

TEST_F(DeviceSkips, WhatIsKnownAfterTheRowHasLedToSomethingLeadsToNothingMore) {
  Options options = on_device(2);
  options.snapshot_every = 10;
  begin(options);
  const std::array left{leave(), leave(), leave(), leave()};
  known(left[0], true);
  known(left[1], true);
  EXPECT_EQ(host(false), Verdict::rollback);
  known(left[2], true);
  known(left[3], true);
  EXPECT_EQ(host(true), Verdict::skip);
  EXPECT_EQ(host(false), Verdict::take);
}

TEST_F(DeviceSkips, AnOutcomeThatComesWithinAStepThatIsLeftIsNotForgotten) {
  begin(on_device(2));
  const int first = leave();
  ASSERT_GT(governor_->leave_to_device(0, false), 0);
  known(first, true);
  StepFinding left = good(2);
  left.is_left = true;
  EXPECT_EQ(governor_->judge(left).verdict, Verdict::take);
  EXPECT_EQ(leave(), -1);
  EXPECT_EQ(row(), 1);
}

TEST_F(DeviceSkips, ReplaysOfAGraphAreInTheOrderInWhichTheyAreTold) {
  begin(on_device(2));
  known(leave(), true);
  EXPECT_GT(governor_->leave_to_device(0, true), 0) << "the graph is there for all its replays";
  for (int i = 0; i < 3000; ++i) governor_->note_device_outcome(0, 0, 2 + i, Fault::gradient);
  EXPECT_EQ(row(), 3001);
  governor_->note_device_outcome(0, 0, 3002, Fault::none);
  EXPECT_EQ(row(), 0);
  EXPECT_EQ(host(false), Verdict::take) << "that row is over";
}

TEST_F(DeviceSkips, RowsAreThoseOfTheirOptimizer) {
  begin(on_device(2));
  for (int i = 1; i < 6; ++i) {
    governor_->note_device_outcome(1, 0, i, Fault::gradient);
    EXPECT_GE(leave(), 0);
    EXPECT_EQ(governor_->leave_to_device(1, false), 0);
    governor_->note_device_outcome(1, 0, i, Fault::none);
  }
}

TEST_F(DeviceSkips, WhatADeviceCannotJudgeAloneIsLeftToNone) {
  Options bounded = on_device(5);
  bounded.skip_norm = 1;
  Options one_of_two = on_device(5);
  one_of_two.world_size = 2;
  for (const Options& options : {bounded, one_of_two, with(NonfinitePolicy::skip)}) {
    begin(options);
    EXPECT_EQ(leave(), -1);
    EXPECT_EQ(governor_->leave_to_device(0, true), 0);
  }
}

TEST_F(DeviceSkips, UnderAnotherPolicyThatCameMeanwhileTheyLeadToNothing) {
  begin(on_device(1));
  const int left = leave();
  governor_->want(ranks::policy_of(with(NonfinitePolicy::watch)));
  known(left, true);
  EXPECT_EQ(host(false), Verdict::take);
  EXPECT_EQ(leave(), -1);
}

TEST(SkipRows, CountWhatIsBehindTheLastStepThatWasTaken) {
  constexpr std::int64_t kNever = 100;
  SkipRows rows;
  const auto known = [&](std::int64_t number, Fault fault) {
    rows.note_outcome(0, {.number = number, .run_step = number, .fault = fault});
    return rows.in_a_row();
  };
  for (int i = 1; i <= 9; ++i) EXPECT_EQ(rows.leave(0, true), i);
  for (const std::int64_t number : {5, 3, 4, 9}) (void)known(number, Fault::loss);
  EXPECT_EQ(rows.in_a_row(), 4);
  EXPECT_EQ(known(4, Fault::none), 2);
  EXPECT_EQ(known(2, Fault::none), 2);
  EXPECT_EQ(known(4, Fault::loss), 2) << "the row that it was in is over";
  EXPECT_FALSE(rows.skipped(0, 10, Fault::loss, kNever));
  EXPECT_EQ(rows.in_a_row(), 3);
  EXPECT_FALSE(rows.taken(0, kNever));
  EXPECT_EQ(rows.in_a_row(), 0);
}

}  // namespace
}  // namespace gradvane::agent
