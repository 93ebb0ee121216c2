// What snapshots are made of: digests, memory limits, the clock, copies of a state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "agent/snapshots/digest.hpp"
#include "agent/snapshots/host_memory.hpp"
#include "agent/snapshots/leader.hpp"
#include "agent/snapshots/snapshot_clock.hpp"
#include "agent/snapshots/training_state.hpp"

namespace gradvane::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Number>
std::span<const std::byte> bytes_of(const std::vector<Number>& numbers) {
  return std::as_bytes(std::span(numbers));
}

constexpr FloatLayout kFloat{4, 0x7F800000};
constexpr FloatLayout kDouble{8, 0x7FF0000000000000};
constexpr FloatLayout kFloat8{1, 0x7F};  // e4m3fn

TEST(Digest, OneNumberThatIsNotFiniteIsSeenWhereverItIs) {
  std::vector<float> numbers(9000, std::numeric_limits<float>::max());
  EXPECT_TRUE(all_finite(bytes_of(numbers), kFloat)) << "large ones are finite";
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, numbers.size() - 1}) {
      numbers[at] = bad;
      EXPECT_FALSE(all_finite(bytes_of(numbers), kFloat)) << bad << ' ' << at;
      numbers[at] = std::numeric_limits<float>::denorm_min();
    }
  std::vector<double> doubles{1, -std::numeric_limits<double>::max()};
  EXPECT_TRUE(all_finite(bytes_of(doubles), kDouble));
  doubles.push_back(INFINITY);
  EXPECT_FALSE(all_finite(bytes_of(doubles), kDouble));
  std::vector<std::uint8_t> bytes(5000, 0x7E);
  EXPECT_TRUE(all_finite(bytes_of(bytes), kFloat8)) << "the largest one";
  bytes[4999] = 0xFF;
  EXPECT_FALSE(all_finite(bytes_of(bytes), kFloat8));
  const std::vector<std::int64_t> whole{-1, std::numeric_limits<std::int64_t>::max()};
  EXPECT_TRUE(all_finite(bytes_of(whole), FloatLayout{})) << "whole numbers always are";
}

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    root_ = testing::TempDir() + "host_memory_" + std::to_string(::getpid()) + "/";
    write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n");
  }
  /// Not with remove_all: torch exports one of its own, which crashes.
  void TearDown() override {
    for (const std::string& file : files_) std::filesystem::remove(file);
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    files_.push_back(root_ + path);
  }
  std::string root_;
  std::vector<std::string> files_;
};

TEST_F(HostMemoryTest, IsThatOfTheMachineWithoutALimit) {
  EXPECT_EQ(available_memory(root_), 8000000LL * 1024);
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root_), 8000000LL * 1024);
}

TEST_F(HostMemoryTest, IsThatOfTheTightestControlGroup) {
  write("proc/self/cgroup", "0::/pods/job\n");
  write("sys/fs/cgroup/pods/memory.max", "5000000000\n");
  write("sys/fs/cgroup/pods/memory.current", "1000000000\n");
  write("sys/fs/cgroup/pods/job/memory.max", "3000000000\n");
  write("sys/fs/cgroup/pods/job/memory.current", "2000000000\n");
  write("sys/fs/cgroup/pods/job/memory.stat", "anon 5\ninactive_file 500000000\n");
  EXPECT_EQ(available_memory(root_), 1500000000);
  write("sys/fs/cgroup/pods/memory.current", "4900000000\n");
  EXPECT_EQ(available_memory(root_), 100000000) << "the one above has less";
}

TEST_F(HostMemoryTest, IsThatOfAControlGroupOfTheFirstVersion) {
  write("proc/self/cgroup", "12:cpu,cpuacct:/job\n5:memory:/pods/job\n0::/\n");
  write("sys/fs/cgroup/memory/pods/job/memory.limit_in_bytes", "3000000000\n");
  write("sys/fs/cgroup/memory/pods/job/memory.usage_in_bytes", "2000000000\n");
  write("sys/fs/cgroup/memory/pods/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file 500000000\n");
  EXPECT_EQ(available_memory(root_), 1500000000);
}

TEST_F(HostMemoryTest, TooLittleIsASentenceWithTheNumbers) {
  EXPECT_EQ(memory_refusal(1 << 20, root_), "");
  EXPECT_THAT(
      memory_refusal(9LL << 30, root_),
      HasSubstr("two snapshots need 9216 MiB of memory more than they have, and 7812 MiB are "
                "available"));
  EXPECT_EQ(memory_refusal(1LL << 60, root_ + "nowhere/"), "") << "it is not known";
}

TEST(SnapshotClockTest, ComesByStepsOrSecondsWhicheverIsFirst) {
  SnapshotClock clock({.steps = 10, .seconds = 60});
  EXPECT_TRUE(clock.is_due(1, 0)) << "the first at once";
  clock.taken(1, 0);
  EXPECT_FALSE(clock.is_due(10, 59));
  EXPECT_TRUE(clock.is_due(11, 1));
  EXPECT_TRUE(clock.is_due(2, 60));
  EXPECT_FALSE(SnapshotClock({}).is_due(1, 0)) << "none";
}

TEST(SnapshotClockTest, OneThatIsLostIsDueAgainAtOnce) {
  SnapshotClock clock({.steps = 10, .seconds = 60, .budget = 0.1});
  clock.taken(1, 0);
  clock.tried(1, 0, 0.1);
  clock.lost();
  EXPECT_FALSE(clock.is_due(2, 0.5)) << "within the budget";
  EXPECT_TRUE(clock.is_due(2, 1));
}

TEST(SnapshotClockTest, RanksThatAgreeHaveTheSameStepsWhateverBecameOfThoseBefore) {
  const auto due = [](bool is_common, const std::set<std::int64_t>& refused) {
    SnapshotClock clock({.steps = 4, .is_common = is_common});
    std::vector<std::int64_t> steps;
    for (std::int64_t step = 3; step < 15; ++step) {
      if (!clock.is_due(step, 0)) continue;
      steps.push_back(step);
      if (!refused.contains(step)) clock.taken(step, 0);
      clock.tried(step, 0, 0);
    }
    return steps;
  };
  EXPECT_THAT(due(true, {}), ElementsAre(3, 7, 11));
  EXPECT_THAT(due(true, {3, 4, 7, 8}), ElementsAre(3, 7, 11));
  EXPECT_THAT(due(false, {3, 4, 7, 8}), ElementsAre(3, 4, 5, 9, 13))
      << "the control: the next step will do";
}

/// Which of these steps the leader's are.
std::vector<bool> leads(Leader& leader, const std::vector<int>& optimizers, std::size_t attached) {
  std::vector<bool> found;
  for (const int optimizer : optimizers) found.push_back(leader.stepped(optimizer, attached));
  return found;
}

TEST(LeaderTest, IsTheOptimizerThatEndsTheFirstRound) {
  Leader one;
  EXPECT_THAT(leads(one, {0, 0}, 1), ElementsAre(true, true));
  Leader of_gan;
  EXPECT_THAT(leads(of_gan, {0, 0, 1, 0, 0, 1}, 2),
              ElementsAre(false, false, true, false, false, true));
  EXPECT_EQ(of_gan.longest_round(), 3);
}

TEST(LeaderTest, DoesNotWaitForOneThatNeverStepsOrThatStepsNoMore) {
  Leader leader;
  std::vector<bool> first = leads(leader, std::vector<int>(40, 0), 2);
  EXPECT_EQ(std::ranges::find(first, true) - first.begin(), Leader::kPatience - 1);
  EXPECT_TRUE(first.back());
  Leader of_gan;
  (void)leads(of_gan, {0, 0, 1}, 2);
  const std::vector<bool> after =
      leads(of_gan, std::vector<int>(3 * Leader::kPatience + Leader::kPatience, 0), 2);
  EXPECT_FALSE(after.front());
  EXPECT_TRUE(after.back());
}

TEST(LeaderTest, GivesOneThatBeginsToStepLateItsPartInTheNextRound) {
  Leader leader;  // a GAN whose critic is trained alone at first
  const std::vector<bool> alone = leads(leader, std::vector<int>(100, 0), 2);
  EXPECT_TRUE(alone.back());
  EXPECT_THAT(leads(leader, {1, 0, 0, 1, 0, 0, 1}, 2),
              ElementsAre(false, false, false, true, false, false, true));
}

TEST(LeaderTest, IsChosenAnewWhenAnOptimizerIsAttached) {
  Leader leader;
  EXPECT_THAT(leads(leader, {0, 0}, 1), ElementsAre(true, true));
  EXPECT_THAT(leads(leader, {0, 1, 0, 1}, 2), ElementsAre(false, true, false, true));
}

TEST(SnapshotClockTest, WaitsUntilItsCostFitsTheBudget) {
  SnapshotClock clock({.steps = 1, .budget = 0.1});
  clock.taken(1, 0);
  clock.tried(1, 0, 2);
  EXPECT_FALSE(clock.is_due(2, 19));
  EXPECT_TRUE(clock.is_due(2, 20));
  clock.also_took(1);
  EXPECT_FALSE(clock.is_due(2, 29));
  EXPECT_TRUE(clock.is_due(2, 30));
}

TEST(StateCopyTest, ThousandCopiesUseTheSameMemory) {
  torch::nn::Linear model(8, 8);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  TrainingState state;
  state.add(*model, &optimizer);
  Copies copies(torch_streams());
  StateCopy copy;
  std::vector<const void*> places;
  for (int i = 0; i < 1000; ++i) {
    model->forward(torch::ones({2, 8})).sum().backward();
    optimizer.step();
    (void)state.copy(copy, copies, false);
    if (i == 0)
      for (const at::Tensor& tensor : copy.tensors) places.push_back(tensor.const_data_ptr());
  }
  ASSERT_EQ(copy.tensors.size(), places.size());
  for (std::size_t i = 0; i < places.size(); ++i)
    EXPECT_EQ(copy.tensors[i].const_data_ptr(), places[i]) << i;
  EXPECT_GE(copy.bytes(), state.bytes());
}

TEST(StateCopyTest, AByteThatChangedInMemoryIsNoticed) {
  torch::nn::Linear model(8, 8);
  TrainingState state;
  state.add(*model, nullptr);
  StateCopy copy;
  Copies copies(torch_streams());
  (void)state.copy(copy, copies, false);
  const std::uint64_t before = copy.checksum();
  EXPECT_EQ(copy.checksum(), before);
  const torch::NoGradGuard no_grad;
  copy.tensors[0][3][3] += 1e-6;
  EXPECT_NE(copy.checksum(), before);
}

}  // namespace
}  // namespace gradvane::agent
