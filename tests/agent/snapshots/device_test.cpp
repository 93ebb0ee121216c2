// Snapshots of what a device holds, on a simulated one: what a missing wait does there, it may do on a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "agent/snapshots/snapshots.hpp"
#include "tests/agent/quiet_ledger.hpp"
#include "tests/agent/snapshots/lazy_streams.hpp"
#include "tests/agent/snapshots/loop.hpp"

namespace gradvane {
namespace {

using namespace test;
using record::SnapshotResult;
using testing::ElementsAre;
using testing::HasSubstr;

/// A training whose every tensor lies on the simulated device.
class OnDevice {
 public:
  explicit OnDevice(const Options& options = rolling_back()) : governor_(options) {
    auto streams = std::make_unique<LazyStreams>();
    device = streams.get();
    snapshots = std::make_unique<agent::Snapshots>(
        governor_, [this] { return captures; }, [this] { return &ledger_; }, std::move(streams));
    ledger_.log = &device->log;
    snapshots->state().add(*loop.model, loop.optimizer.get());
  }

  void step(double factor = 1) {
    (void)loop.backward(static_cast<int>(run_step), factor);
    snapshots->before_update();
    loop.optimizer->step();
    snapshots->after_step(0, ++run_step, false, true);
  }
  /// At some time.
  void second_stream_writes() {
    at::Tensor weight = loop.model->parameters()[0];
    device->put(LazyStreams::kSecond, [weight]() mutable {
      const c10::NoGradGuard no_grad;
      (void)weight.fill_(7);
    });
  }
  [[nodiscard]] std::int64_t counted(SnapshotResult result) const {
    const auto summary = governor_.summary();
    return summary ? summary->snapshots[index_of(result)] : 0;
  }
  /// Without what marks calls as Gradvane's own.
  [[nodiscard]] std::vector<std::string> calls() const {
    std::vector<std::string> found;
    for (const std::string& call : device->log)
      if (call != "ours" && call != "theirs") found.push_back(call);
    return found;
  }

  Loop loop;
  std::int64_t run_step = 0;
  bool captures = false;
  LazyStreams* device = nullptr;

 private:
  struct Ledger final : QuietLedger {
    void own(int delta) noexcept override { log->push_back(delta > 0 ? "ours" : "theirs"); }
    std::vector<std::string>* log = nullptr;
  };

  Ledger ledger_;
  agent::Governor governor_;

 public:
  std::unique_ptr<agent::Snapshots> snapshots;
};

TEST(DeviceSnapshots, AreBehindTheWritersAndOnlyTheOptimizerWaitsForParameters) {
  OnDevice training;
  training.device->lands = false;
  training.step();
  EXPECT_THAT(training.calls(),
              ElementsAre("record main", "side waits for main",                  // the update
                          "copy on side", "record side", "main waits for side",  // buffers
                          "copy on side", "record side"));                       // the others
  training.device->log.clear();
  (void)training.loop.backward(1);
  training.snapshots->before_update();
  EXPECT_EQ(training.calls().front(), "main waits for side");
  EXPECT_THAT(training.device->log, testing::Not(testing::Contains("host waits")));
}

TEST(DeviceSnapshots, AreThoseOfTheirStepAlthoughTheTrainingGoesOn) {
  for (const bool forgets : {false, true}) {
    OnDevice training(rolling_back(3));
    training.device->lands = false;
    training.device->forgets_waits = forgets;
    training.step();
    const auto good = training.loop.everything();
    training.step();
    const auto other = training.loop.everything();
    training.device->lands = true;
    training.step();  // the same place in the pace: no other snapshot yet
    (void)training.snapshots->go_back("a test", training.run_step, {});
    training.device->run_all();
    EXPECT_EQ(same(training.loop.everything(), good), !forgets) << "the control forgets the waits";
    EXPECT_FALSE(same(good, other));
  }
}

TEST(DeviceSnapshots, CountWhenTheyHaveLandedAndHaveBeenExamined) {
  OnDevice training(rolling_back(100));
  training.device->lands = false;
  training.step();
  EXPECT_EQ(training.counted(SnapshotResult::committed), 0) << "they are under way";
  training.device->lands = true;
  while (training.counted(SnapshotResult::committed) == 0) training.step();
  EXPECT_THAT(training.device->log, testing::Not(testing::Contains("host waits")));
  EXPECT_EQ(training.snapshots->go_back("a test", training.run_step, {}).to_step, 1);
}

TEST(DeviceSnapshots, ARollbackTakesTheOneThatIsUnderWay) {
  OnDevice training(rolling_back(100));
  training.device->lands = false;
  training.step();
  const auto good = training.loop.everything();
  EXPECT_EQ(training.snapshots->go_back("a test", training.run_step, {}).to_step, 1);
  training.device->run_all();
  EXPECT_TRUE(same(training.loop.everything(), good));
}

TEST(DeviceSnapshots, ATrainingGoesOnFromThemBitForBit) {
  OnDevice whole(rolling_back(100));
  for (int i = 0; i < 8; ++i) whole.step();
  const auto expected = whole.loop.everything();
  OnDevice broken(rolling_back(100));
  for (int i = 0; i < 4; ++i) broken.step();
  ASSERT_TRUE(broken.snapshots->take_now(broken.run_step));
  for (int i = 0; i < 3; ++i) broken.step(100);
  EXPECT_EQ(broken.snapshots->go_back("a test", broken.run_step, {}).to_step, 4);
  broken.run_step = 4;
  for (int i = 0; i < 4; ++i) broken.step();
  EXPECT_TRUE(same(broken.loop.everything(), expected));
}

TEST(DeviceSnapshots, OfParametersThatSomethingElseWritesAreGivenUpAndTheNextOnesHoldTheStreams) {
  OnDevice training;
  training.device->lands = false;
  training.step();
  {
    const c10::NoGradGuard no_grad;
    (void)training.loop.model->parameters()[0].mul_(2);
  }
  training.device->log.clear();
  training.step();
  EXPECT_EQ(training.counted(SnapshotResult::written), 1);
  EXPECT_THAT(training.snapshots->last_refusal(), HasSubstr("written between two steps"));
  const auto calls = training.calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "copy on side"), 1) << "all wait at once";
}

TEST(DeviceSnapshots, OneThatIsLostOnItsWayIsTriedAgainAtTheNextStep) {
  OnDevice training(rolling_back(100));
  training.device->lands = false;
  training.step();
  {
    const c10::NoGradGuard no_grad;
    (void)training.loop.model->parameters()[0].mul_(2);
  }
  for (const int copies : {1, 0}) {
    training.device->log.clear();
    training.step();
    const auto calls = training.calls();
    EXPECT_EQ(std::count(calls.begin(), calls.end(), "copy on side"), copies);
  }
  EXPECT_EQ(training.counted(SnapshotResult::written), 1);
}

TEST(DeviceSnapshots, ThatADeviceFailsInTheMiddleOfLeaveTheOneBefore) {
  int calls = 0;
  for (bool has_failed = true; has_failed; ++calls) {
    SCOPED_TRACE(calls);
    OnDevice training(rolling_back(2));
    std::vector<std::vector<at::Tensor>> states{training.loop.everything()};  // by step
    const auto step = [&] {
      training.step();
      states.push_back(training.loop.everything());
    };
    while (training.counted(SnapshotResult::committed) == 0) step();
    training.device->fails_in = calls;  // the next one may be under way
    while (training.device->fails_in >= 0 && training.counted(SnapshotResult::committed) < 3)
      step();
    has_failed = training.device->fails_in < 0;
    training.device->fails_in = -1;
    EXPECT_EQ(training.counted(SnapshotResult::failed), has_failed ? 1 : 0);
    const Rollback done = training.snapshots->go_back("a test", training.run_step, {});
    training.device->run_all();
    EXPECT_TRUE(
        same(training.loop.everything(), states.at(static_cast<std::size_t>(done.to_step))));
    const auto committed = training.counted(SnapshotResult::committed);
    for (int i = 0; i < 10'000 && training.counted(SnapshotResult::committed) == committed; ++i)
      training.step();
    EXPECT_GT(training.counted(SnapshotResult::committed), committed) << "later ones are taken";
  }
  EXPECT_GT(calls, 6) << "each of the calls failed once";
}

TEST(DeviceSnapshots, AreRefusedWhileTheHostHasNoMemoryForWhatTheyLack) {
  OnDevice training(rolling_back(100));
  training.step();
  std::vector<std::int64_t> asked;
  std::string answer = "there is none";
  training.snapshots->ask_for_memory([&](std::int64_t bytes) {
    asked.push_back(bytes);
    return answer;
  });
  const std::int64_t had = training.counted(SnapshotResult::committed);
  EXPECT_FALSE(training.snapshots->take_now(1));
  EXPECT_EQ(training.counted(SnapshotResult::memory), 1);
  EXPECT_EQ(training.snapshots->last_refusal(), "there is none");
  answer.clear();
  EXPECT_TRUE(training.snapshots->take_now(2));
  EXPECT_TRUE(training.snapshots->take_now(3));
  ASSERT_EQ(asked.size(), 2U) << "with two in memory nothing is lacking";
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_LE(asked[0], training.snapshots->state().bytes() * (had > 0 ? 1 : 2));
}

TEST(DeviceSnapshots, WhatTheProgramAddsHasToBeFiniteToo) {
  OnDevice training(rolling_back(100));
  at::Tensor own = torch::ones({2});
  training.snapshots->state().add("average", [&] { return std::vector{own}; }, [](const auto&) {});
  EXPECT_TRUE(training.snapshots->take_now(0));
  own.index_put_({1}, kNan);
  EXPECT_FALSE(training.snapshots->take_now(1));
  EXPECT_THAT(training.snapshots->last_refusal(), HasSubstr("the program's own is not finite"));
}

TEST(DeviceSnapshots, ThatAreNotFiniteAreRefused) {
  OnDevice training(rolling_back(100));
  {
    const c10::NoGradGuard no_grad;
    (void)training.loop.model->parameters()[2].fill_(kNan);
  }
  EXPECT_FALSE(training.snapshots->take_now(0));
  EXPECT_EQ(training.counted(SnapshotResult::nonfinite), 1);
  EXPECT_THAT(training.snapshots->last_refusal(), HasSubstr("is not finite"));
}

TEST(DeviceSnapshots, AskNothingOfAStreamThatRecordsAGraph) {
  OnDevice training;
  training.device->lands = false;
  training.step();
  training.device->log.clear();
  training.captures = true;
  training.step();
  training.step();
  EXPECT_THAT(training.device->log, testing::IsEmpty());
  EXPECT_EQ(training.counted(SnapshotResult::capturing), 3) << "one was under way";
  EXPECT_THROW((void)training.snapshots->go_back("a test", 3, {}), std::runtime_error);
  training.captures = false;
  training.device->lands = true;
  training.step();
  ASSERT_TRUE(training.snapshots->take_now(training.run_step));
}

TEST(DeviceSnapshots, ARestoreIsBehindWritersAndTheyAreBehindIt) {
  OnDevice training(rolling_back(100));
  training.snapshots->writes_on(LazyStreams::stream(LazyStreams::kSecond));
  ASSERT_TRUE(training.snapshots->take_now(0));
  const auto good = training.loop.everything();
  training.second_stream_writes();
  training.device->log.clear();
  (void)training.snapshots->go_back("a test", 1, {});
  EXPECT_THAT(training.calls(), ElementsAre("record second", "main waits for second", "record side",
                                            "main waits for side", "copy on main", "record main",
                                            "second waits for main"));
  training.device->run_all();
  EXPECT_TRUE(same(training.loop.everything(), good));
}

TEST(DeviceSnapshots, TheFallbackWaitsForAllThatNobodyKnowsOf) {
  for (const bool synchronizes : {false, true}) {
    Options options = rolling_back(100);
    options.rollback_device_sync = synchronizes;
    OnDevice training(options);
    ASSERT_TRUE(training.snapshots->take_now(0));
    const auto good = training.loop.everything();
    training.second_stream_writes();
    (void)training.snapshots->go_back("a test", 1, {});
    training.device->run_all();
    EXPECT_EQ(same(training.loop.everything(), good), synchronizes) << "the control knows nothing";
  }
}

TEST(DeviceSnapshots, EachCallToTheDeviceIsOurs) {
  OnDevice training(rolling_back(2));
  for (int i = 0; i < 5; ++i) training.step();
  ASSERT_TRUE(training.snapshots->take_now(training.run_step));
  (void)training.snapshots->go_back("a test", training.run_step, {});
  int depth = 0;
  for (const std::string& call : training.device->log) {
    if (call == "ours" || call == "theirs")
      depth += call == "ours" ? 1 : -1;
    else
      EXPECT_EQ(depth, 1) << call;
  }
  EXPECT_EQ(depth, 0);
}

TEST(DeviceSnapshots, TakeTheirHostMemoryOnce) {
  OnDevice training;
  // Adam's moments come into being in the first step, and both generations have their places.
  while (training.counted(SnapshotResult::committed) < 4) training.step();
  const int blocks = training.device->blocks;
  while (training.counted(SnapshotResult::committed) < 50) training.step();
  EXPECT_EQ(training.device->blocks, blocks);
}

TEST(DeviceSnapshots, OfARunThatEndsMeanwhileLandBeforeTheirMemoryGoes) {
  OnDevice training;
  training.device->lands = false;
  training.step();
  const std::shared_ptr<int> waits = training.device->host_waits;
  EXPECT_EQ(*waits, 0);
  training.snapshots.reset();
  EXPECT_EQ(*waits, 1);
}

}  // namespace
}  // namespace gradvane
