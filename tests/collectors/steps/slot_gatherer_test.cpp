// The worker's view of devices: results that come late, out of one ring or several, or never.
#include "collectors/steps/slot_gatherer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "collectors/steps/device_feed.hpp"
#include "tests/collectors/steps/fake_device.hpp"

namespace gradvane::collectors::test {
namespace {

using Found = DeviceFeed::Found;

TEST(DeviceFeed, FindsEachReadByItsTokenAndPassesOverThoseThatNobodyClaimed) {
  FakeDevice device(1, 1);
  DeviceFeed feed(device.source());
  EXPECT_EQ(feed.find(1), Found::not_yet);
  for (std::uint64_t token = 1; token <= 4; ++token)
    device.publish(7, token, {stats_of(static_cast<double>(token))});
  EXPECT_EQ(feed.find(1), Found::yes);
  EXPECT_EQ(feed.stats().at(0).sum, 1);
  EXPECT_EQ(feed.find(4), Found::yes);
  EXPECT_EQ(feed.stats().at(0).sum, 4);
  EXPECT_EQ(feed.find(5), Found::not_yet);
}

TEST(DeviceFeed, AReadThatWasOverwrittenIsLostAndTheNextOneIsNot) {
  FakeDevice device(1, 1, 2);
  DeviceFeed feed(device.source());
  for (std::uint64_t token = 1; token <= 10; ++token) device.publish(7, token, {stats_of(1)});
  EXPECT_EQ(feed.find(3), Found::lost);
  EXPECT_EQ(feed.find(8), Found::lost);
  EXPECT_EQ(feed.find(10), Found::yes);
}

TEST(DeviceFeed, TurnsPlacesInMemoryIntoRowMajorIndices) {
  FakeDevice device(1, 1);
  device.source()->orders[0] = {{2, 3}, {1, 2}, false};  // a transposed matrix
  DeviceFeed feed(device.source());
  device.publish(7, 1, {stats_of(1, true)});
  ASSERT_EQ(feed.find(1), Found::yes);
  EXPECT_EQ(feed.stats().at(0).first_nonfinite, 3) << "memory place 1 is row 1, column 0";
}

TEST(DeviceFeed, SetsTheReplaysOfACapturedReadAside) {
  FakeDevice device(1, 1);
  DeviceFeed feed(device.source());
  feed.note_captured(2);
  device.publish(7, 1, {stats_of(1)});
  device.publish(7, 2, {stats_of(2)});
  device.publish(7, 2, {stats_of(3)});
  device.publish(7, 3, {stats_of(4)});
  EXPECT_EQ(feed.find(1), Found::yes);
  EXPECT_EQ(feed.find(3), Found::yes);
  EXPECT_EQ(feed.stats().at(0).sum, 4);
  ASSERT_TRUE(feed.has_replay(2, true));
  EXPECT_EQ(feed.take_replay(2).stats.at(0).sum, 2);
  ASSERT_TRUE(feed.has_replay(2, true));
  EXPECT_EQ(feed.take_replay(2).stats.at(0).sum, 3);
  EXPECT_FALSE(feed.has_replay(2, true));
}

TEST(DeviceFeed, AReadThatReplaysRanOverIsLostRatherThanWaitedForEver) {
  FakeDevice device(1, 1, 4);
  DeviceFeed feed(device.source());
  feed.note_captured(2);
  EXPECT_EQ(feed.find(3), Found::not_yet);
  device.publish(7, 3, {stats_of(3)});
  for (int replay = 0; replay < 20; ++replay) device.publish(7, 2, {stats_of(2)});
  EXPECT_EQ(feed.find(3), Found::lost);
}

TEST(DeviceFeed, AReplayThatCameBeforeItsTokenWasKnownIsNotLost) {
  FakeDevice device(1, 1);
  DeviceFeed feed(device.source());
  device.publish(7, 2, {stats_of(2)});
  EXPECT_EQ(feed.find(1), Found::lost) << "token 2 is held";
  feed.note_captured(2);
  EXPECT_TRUE(feed.has_replay(2, false));
}

class SlotsOfDevices : public testing::Test {
 protected:
  SlotsOfDevices() {
    auto plan = std::make_shared<ReadPlan>();
    plan->id = 7;
    plan->model = std::make_shared<record::ModelInfo>();
    const std::array<std::shared_ptr<const ReadPlan>, 1> plans{plan};
    handoff_.set_plans(plans, 3);
    handoff_.add_sources({first_.source(), second_.source()});
  }

  Handoff handoff_{8};
  FakeDevice first_{1, 3};
  FakeDevice second_{2, 3};
  SlotGatherer gatherer_{handoff_};
};

TEST_F(SlotsOfDevices, AStepIsReadyWhenItsLastDeviceIs) {
  StepFacts facts;
  facts.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(1), second_.read(1)});
  EXPECT_FALSE(gatherer_.ready(facts));
  first_.publish(7, 1, {stats_of(1), not_read(EntryTag::elsewhere), not_read(EntryTag::frozen)});
  EXPECT_FALSE(gatherer_.ready(facts));
  second_.publish(7, 1, {not_read(EntryTag::elsewhere), stats_of(2), not_read(EntryTag::frozen)});
  EXPECT_TRUE(gatherer_.ready(facts));
  const StepSlots& slots = gatherer_.take(facts);
  ASSERT_EQ(slots.gradients.size(), 3u);
  EXPECT_EQ(slots.gradients[0].sum, 1);
  EXPECT_EQ(slots.gradients[1].sum, 2);
  EXPECT_EQ(tag_of(slots.gradients[2]), EntryTag::frozen);
  EXPECT_EQ(slots.plan->id, 7u);
}

TEST_F(SlotsOfDevices, EntriesOnTheHostAndOnADeviceMakeOneList) {
  StepFacts facts;
  const std::vector<kernels::Site> sites(3, kernels::Site::grad);
  const std::vector<kernels::TensorStats> host{stats_of(5), not_read(EntryTag::elsewhere),
                                               not_read(EntryTag::missing)};
  facts.reads.set_on_host(SlotRole::gradients, handoff_.publish(7, sites, host));
  facts.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(1)});
  first_.publish(7, 1, {not_read(EntryTag::elsewhere), stats_of(6, true), stats_of(0.5)});
  ASSERT_TRUE(gatherer_.ready(facts));
  const StepSlots& slots = gatherer_.take(facts);
  EXPECT_EQ(slots.gradients[0].sum, 5);
  EXPECT_EQ(slots.gradients[1].sum, 6);
  EXPECT_EQ(slots.gradients[2].sum, 0.5) << "the loss, say";
  EXPECT_EQ(gatherer_.totals().elements[static_cast<int>(kernels::Site::grad)][0], 1);
}

TEST(SlotReads, KeepTheLatestOfEachRoleAndSourceGradientsFirst) {
  SlotReads reads;
  reads.set_on_host(SlotRole::loss, 1);
  reads.set_on_devices(SlotRole::user, std::array{DeviceRead{3, 1}});
  reads.set_on_host(SlotRole::gradients, 2);
  reads.set_on_devices(SlotRole::gradients, std::array{DeviceRead{1, 7}, DeviceRead{2, 7}});
  reads.set_on_host(SlotRole::gradients, 3);  // read again
  reads.set_on_devices(SlotRole::gradients, std::array{DeviceRead{2, 8}, DeviceRead{}});
  std::vector<std::array<std::uint64_t, 3>> all;
  for (const SlotRead& read : reads)
    all.push_back({static_cast<std::uint64_t>(read.role), read.source, read.token});
  const auto gradients = static_cast<std::uint64_t>(SlotRole::gradients);
  EXPECT_EQ(all, (std::vector<std::array<std::uint64_t, 3>>{
                     {gradients, kHostSource, 3},
                     {gradients, 2, 8},
                     {static_cast<std::uint64_t>(SlotRole::loss), kHostSource, 1},
                     {static_cast<std::uint64_t>(SlotRole::user), 3, 1}}));
  EXPECT_TRUE(reads.has_on_devices(SlotRole::gradients));
  EXPECT_FALSE(reads.has_on_devices(SlotRole::loss));
}

TEST(SlotReads, HaveRoomForEveryRoleOnTheHostAndOnEveryDevice) {
  SlotReads reads;
  std::array<DeviceRead, kMaxDevices> devices{};
  for (std::size_t i = 0; i < devices.size(); ++i) devices[i] = {i + 1, 1};
  for (const auto role : {SlotRole::user, SlotRole::gradients, SlotRole::loss, SlotRole::weights}) {
    const bool is_one = role == SlotRole::user || role == SlotRole::loss;
    reads.set_on_devices(role, std::span(devices).first(is_one ? 1 : devices.size()));
    reads.set_on_host(role, 1);
  }
  EXPECT_EQ(std::distance(reads.begin(), reads.end()), 2 * 9 + 2 * 2);
  EXPECT_EQ((reads.end() - 1)->role, SlotRole::user);
}

TEST_F(SlotsOfDevices, ASlotOnTheHostThatIsGoneIsLost) {
  StepFacts facts;
  const std::vector<kernels::Site> sites(3, kernels::Site::grad);
  const std::vector<kernels::TensorStats> host(3, stats_of(5));
  facts.reads.set_on_host(SlotRole::gradients, handoff_.publish(7, sites, host));
  for (int i = 0; i < 20; ++i) (void)handoff_.publish(7, sites, host);
  EXPECT_TRUE(gatherer_.ready(facts));
  EXPECT_TRUE(gatherer_.take(facts).gradients.empty());
  EXPECT_EQ(gatherer_.take_lost_reads(), 1);
}

TEST_F(SlotsOfDevices, OneStepsSlotsDoNotLeakIntoTheNext) {
  StepFacts facts;
  facts.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(1)});
  first_.publish(7, 1, {stats_of(1), stats_of(1), stats_of(1)});
  ASSERT_TRUE(gatherer_.ready(facts));
  (void)gatherer_.take(facts);
  StepFacts nothing;
  ASSERT_TRUE(gatherer_.ready(nothing));
  EXPECT_TRUE(gatherer_.take(nothing).gradients.empty());
  facts.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(2)});
  EXPECT_FALSE(gatherer_.ready(facts));
  EXPECT_TRUE(gatherer_.take(facts).gradients.empty()) << "given up waiting: not the step before's";
}

TEST_F(SlotsOfDevices, AnUnknownSourceIsLostRatherThanWaitedForEver) {
  StepFacts facts;
  facts.reads.set_on_devices(SlotRole::gradients, std::array{DeviceRead{99, 1}});
  EXPECT_TRUE(gatherer_.ready(facts));
  EXPECT_TRUE(gatherer_.take(facts).gradients.empty());
}

TEST_F(SlotsOfDevices, EachReplayOfACapturedStepIsAStepOnceAllItsSlotsAreThere) {
  StepFacts facts;
  facts.step = 4;
  facts.captured = true;
  facts.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(1)});
  facts.reads.set_on_devices(SlotRole::weights, std::array{second_.read(1)});
  gatherer_.note_captured(facts);
  EXPECT_FALSE(gatherer_.next_replay(SlotGatherer::Look::further));
  first_.publish(7, 1, {stats_of(1), stats_of(1), stats_of(1)});
  EXPECT_FALSE(gatherer_.next_replay(SlotGatherer::Look::further));
  second_.publish(7, 1, {stats_of(2), stats_of(2), stats_of(2)});
  first_.publish(7, 1, {stats_of(3), stats_of(3), stats_of(3)});
  const auto replay = gatherer_.next_replay(SlotGatherer::Look::further);
  ASSERT_TRUE(replay);
  EXPECT_EQ(replay->step, 4);
  const StepSlots& slots = gatherer_.take_replay();
  EXPECT_EQ(slots.gradients[0].sum, 1);
  EXPECT_EQ(slots.weights[0].sum, 2);
  EXPECT_FALSE(gatherer_.next_replay(SlotGatherer::Look::further))
      << "the second replay's weights are still to come";
}

TEST_F(SlotsOfDevices, TotalsAreThoseOfTheStepTakenThoughLaterSlotsHaveBeenSeen) {
  const auto grad = static_cast<int>(kernels::Site::grad);
  StepFacts captured;
  captured.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(1)});
  gatherer_.note_captured(captured);
  StepFacts facts;
  facts.reads.set_on_devices(SlotRole::gradients, std::array{first_.read(2)});
  const auto bad = stats_of(1, true);
  first_.publish(7, 1, {bad, stats_of(1), stats_of(1)});  // a replay
  first_.publish(7, 2, {bad, bad, stats_of(1)});
  first_.publish(7, 3, {bad, bad, bad});  // of a later step
  ASSERT_TRUE(gatherer_.ready(facts));
  ASSERT_TRUE(gatherer_.next_replay(SlotGatherer::Look::behind));
  (void)gatherer_.take_replay();
  EXPECT_EQ(gatherer_.totals().elements[grad][0], 1);
  EXPECT_FALSE(gatherer_.next_replay(SlotGatherer::Look::behind));
  EXPECT_EQ(gatherer_.take(facts).gradients.size(), 3u);
  EXPECT_EQ(gatherer_.totals().elements[grad][0], 3);
}

}  // namespace
}  // namespace gradvane::collectors::test
