// The worker, with devices whose results a test holds back.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/worker/worker.hpp"
#include "collectors/steps/handoff.hpp"
#include "tests/agent/quiet_ledger.hpp"
#include "tests/collectors/steps/fake_device.hpp"

namespace gradvane::agent::test {
namespace {

using namespace std::chrono_literals;
using collectors::StepFacts;
using collectors::test::FakeDevice;
using collectors::test::stats_of;

class WorkerOfADevice : public testing::Test {
 protected:
  explicit WorkerOfADevice(const Options& policy = {}) : governor_(policy) {
    auto model = std::make_shared<record::ModelInfo>();
    model->id = 1;
    model->params.resize(1);
    model->params[0].name = "weight";
    model->groups.resize(1);
    auto plan = std::make_shared<collectors::ReadPlan>();
    plan->id = 7;
    plan->model = model;
    plan->params = {0};
    const std::array<std::shared_ptr<const collectors::ReadPlan>, 1> plans{plan};
    handoff_.set_plans(plans, 3);
    handoff_.add_sources({device_.source()});
    options_.port = -1;
    options_.handle_sigterm = false;
    options_.log = [this](std::string_view line) { said_ += std::string(line) + "\n"; };
    start(nullptr);
  }

  void start(collectors::SyncLedger* ledger) {
    record::RunInfo run;
    run.run = "test";
    worker_.reset();
    worker_ = std::make_unique<Worker>(options_, run, handoff_, governor_, nullptr, ledger);
  }

  void hand_over(std::int64_t step, std::uint64_t token, bool captured = false) {
    StepFacts facts;
    facts.step = facts.run_step = step;
    facts.reads.set_on_devices(collectors::SlotRole::gradients, std::array{device_.read(token)});
    facts.captured = captured;
    handoff_.publish(facts);
  }
  void arrive(std::uint64_t token, double norm) {
    device_.publish(7, token, {stats_of(norm), stats_of(0.25)});  // a gradient, and the loss
  }

  Options options_;
  collectors::Handoff handoff_{8};
  FakeDevice device_{1, 2};
  std::string said_;
  Governor governor_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerOfADevice, ExportsAStepWhenItsResultArrivesAndNotBefore) {
  hand_over(1, 1);
  EXPECT_FALSE(worker_->flush(50ms));
  EXPECT_EQ(worker_->status().steps, 0);
  arrive(1, 3);
  EXPECT_TRUE(worker_->flush(5s));
  EXPECT_EQ(worker_->status().steps, 1);
  EXPECT_EQ(worker_->status().latest.grad_norm, 3);
  EXPECT_EQ(worker_->status().latest.loss, 0.25);
}

TEST_F(WorkerOfADevice, TheLastStepsOfARunAreWaitedFor) {
  hand_over(1, 1);
  std::jthread late([this] {
    std::this_thread::sleep_for(100ms);
    arrive(1, 5);
  });
  worker_->end(record::RunState::finished, "", Worker::Linger::no);
  EXPECT_EQ(worker_->status().latest.grad_norm, 5);
}

TEST_F(WorkerOfADevice, AResultThatNeverComesDoesNotHoldTheEndForLong) {
  hand_over(1, 1);
  const auto begin = std::chrono::steady_clock::now();
  worker_->end(record::RunState::finished, "", Worker::Linger::no);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(worker_->status().steps, 1) << "the step itself is not lost";
  EXPECT_FALSE(worker_->status().latest.grad_norm);
}

TEST_F(WorkerOfADevice, ALostDeviceIsNamedAndItsStepsAreNotWaitedFor) {
  hand_over(1, 1);
  EXPECT_FALSE(worker_->flush(50ms));
  handoff_.note_device_failure("CUDA device 0: an illegal memory access was encountered");
  EXPECT_TRUE(worker_->flush(5s));
  EXPECT_EQ(worker_->status().steps, 1);
  EXPECT_NE(worker_->status().reason.find("illegal memory access"), std::string::npos);
  worker_->end(record::RunState::failed, "", Worker::Linger::no);
  EXPECT_NE(said_.find("CUDA device 0"), std::string::npos);
}

TEST_F(WorkerOfADevice, ReplaysOfAGraphAreStepsThatGoOnCounting) {
  hand_over(1, 1);
  arrive(1, 1);
  hand_over(2, 2, true);  // captured: not taken
  EXPECT_TRUE(worker_->flush(5s));
  EXPECT_EQ(worker_->status().steps, 1);
  for (int replay = 0; replay < 3; ++replay) arrive(2, 2);
  const auto until = std::chrono::steady_clock::now() + 5s;
  while (worker_->status().steps < 4 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(worker_->status().latest.step, 4);
  hand_over(3, 3);  // as the training thread counts, which saw no replay
  EXPECT_FALSE(worker_->flush(50ms));
  arrive(2, 4);  // one more replay, before it
  arrive(3, 9);
  EXPECT_TRUE(worker_->flush(5s));
  EXPECT_EQ(worker_->status().latest.step, 6);
  EXPECT_EQ(worker_->status().steps, 6);
  EXPECT_EQ(worker_->status().latest.grad_norm, 9);
}

/// Steps whose update is left to the device, under `skip`.
class WorkerOfStepsLeftToADevice : public WorkerOfADevice {
 protected:
  static constexpr std::chrono::seconds kSoon = 5s;

  WorkerOfStepsLeftToADevice() : WorkerOfADevice(policy()) {}

  void leave(std::int64_t step, bool captured = false) {
    StepFacts facts;
    facts.step = facts.run_step = step;
    facts.left_to_device = governor_.leave_to_device(0, captured);
    ASSERT_GT(facts.left_to_device, 0);
    facts.reads.set_on_devices(collectors::SlotRole::gradients,
                               std::array{device_.read(static_cast<std::uint64_t>(step))});
    facts.captured = captured;
    handoff_.publish(facts);
  }
  void arrive(std::int64_t step, bool is_bad) {
    device_.publish(7, static_cast<std::uint64_t>(step), {stats_of(1, is_bad), stats_of(0.25)});
  }
  /// Up to some seconds.
  static void wait_until(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + kSoon;
    while (!holds() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(2ms);
  }
  static Options policy() {
    Options options;
    options.on_nonfinite = NonfinitePolicy::skip;
    options.skip_on_device = true;
    options.skip_limit = 2;
    return options;
  }
  Verdict judge(std::int64_t run_step, bool is_bad = false) {
    StepFinding step;
    step.run_step = run_step;
    step.is_measured = true;
    step.gradients_are_bad = is_bad;
    return governor_.judge(step).verdict;
  }
};

TEST_F(WorkerOfStepsLeftToADevice, WhatTheDeviceDidIsReportedAndCounted) {
  for (std::int64_t step = 1; step <= 3; ++step) leave(step);
  arrive(1, false);
  arrive(2, true);
  wait_until([this] { return worker_->status().steps == 2; });
  EXPECT_EQ(worker_->status().latest.skipped, "governor");
  EXPECT_EQ(governor_.status().skipped_steps, 1);
  EXPECT_EQ(governor_.status().skips_in_a_row, 1);
  EXPECT_EQ(governor_.leave_to_device(0, false), 0) << "the next one is judged in time";
  arrive(3, true);
  EXPECT_TRUE(worker_->flush(kSoon));
  EXPECT_EQ(judge(4), Verdict::stop);
  EXPECT_NE(governor_.stop_reason().find("step 3, the last of 2 skipped in a row"),
            std::string::npos)
      << governor_.stop_reason();
}

TEST_F(WorkerOfStepsLeftToADevice, AReadThatWasLostTellsNothingOfTheRow) {
  leave(1);
  arrive(1, true);
  EXPECT_TRUE(worker_->flush(kSoon));
  EXPECT_EQ(judge(2), Verdict::take);
  leave(3);
  leave(4);
  arrive(4, true);  // the slot of step 3 is gone
  EXPECT_TRUE(worker_->flush(kSoon));
  EXPECT_EQ(governor_.status().skips_in_a_row, 1);
  EXPECT_EQ(governor_.status().skipped_steps, 2);
}

TEST_F(WorkerOfStepsLeftToADevice, EachReplayOfAGraphIsJudged) {
  leave(1, /*captured=*/true);
  EXPECT_TRUE(worker_->flush(kSoon));
  for (const bool is_bad : {false, true, false, true, true, true}) arrive(1, is_bad);
  wait_until([this] { return governor_.status().skips_in_a_row == 3; });
  EXPECT_EQ(governor_.status().skipped_steps, 4);
  EXPECT_EQ(governor_.status().skips_in_a_row, 3);
}

/// Knows of one host sync between any two moments.
class OneSyncLedger final : public gradvane::test::QuietLedger {
 public:
  bool step(const collectors::SyncMark& /*begin*/, const collectors::SyncMark& /*end*/,
            record::StepSyncs& syncs) override {
    ++asked;
    syncs.calls[index_of(record::SyncOrigin::training)][index_of(record::SyncKind::device)] = 1;
    return true;
  }
  std::atomic<int> asked = 0;
};

TEST_F(WorkerOfADevice, ReplaysAreNotGivenTheHostSyncsOfTheirCapture) {
  OneSyncLedger ledger;
  options_.sync_budget = 0;
  start(&ledger);
  const auto hand_over = [&](std::int64_t step, std::uint64_t token, bool captured) {
    StepFacts facts;
    facts.step = facts.run_step = step;
    facts.reads.set_on_devices(collectors::SlotRole::gradients, std::array{device_.read(token)});
    facts.captured = captured;
    facts.syncs_after.epoch = static_cast<std::uint32_t>(step);
    facts.syncs_until.epoch = static_cast<std::uint32_t>(step + 1);
    handoff_.publish(facts);
  };
  hand_over(1, 1, false);
  arrive(1, 1);
  hand_over(2, 2, true);
  ASSERT_TRUE(worker_->flush(5s));
  EXPECT_EQ(ledger.asked, 1) << "of the step that was seen";
  for (int replay = 0; replay < 3; ++replay) arrive(2, 2);
  const auto until = std::chrono::steady_clock::now() + 5s;
  while (worker_->status().steps < 4 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(worker_->status().steps, 4);
  EXPECT_EQ(ledger.asked, 1) << "what the replays waited for is not known";
  worker_->end(record::RunState::finished, "", Worker::Linger::no);
}

}  // namespace
}  // namespace gradvane::agent::test
