// What DeviceReads makes, keeps and uses again, over a CUDA runtime that is not there.
#include "collectors/tensors/device_reads.hpp"

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "collectors/tensors/one_device_cuda.hpp"
#include "tests/kernels/device/fake_cuda.hpp"

namespace gradvane::collectors {
namespace {

using kernels::Site;
using kernels::test::fake_cuda;
using kernels::test::FakeCuda;

constexpr std::size_t kEntries = 4;

class DeviceReadsTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda() = FakeCuda();
    values_.fill(1);
  }

  /// Of up to 32 elements, on a device that the host can read.
  at::Tensor tensor(const std::vector<std::int64_t>& sizes, at::ScalarType type = at::kFloat) {
    const at::Device device(at::kCUDA, 0);
    return at::for_blob(values_.data(), sizes)
        .options(at::TensorOptions().dtype(type).device(device))
        .target_device(device)
        .make_tensor();
  }
  std::vector<at::Tensor> params(bool trains = true) {
    std::vector<at::Tensor> params;
    for (std::size_t i = 0; i < kEntries; ++i)
      params.push_back(tensor({4, static_cast<std::int64_t>(i) + 1}).set_requires_grad(trains));
    return params;
  }
  void resize(std::span<const at::Tensor> expected, std::uint64_t plan_id = 7) {
    reads_.resize(std::vector(kEntries, Site::grad), 4, plan_id, expected);
  }
  void set(std::span<const at::Tensor> tensors, const std::vector<std::size_t>& entries) {
    for (const std::size_t i : entries) EXPECT_EQ(reads_.set(i, tensors[i]), EntryTag::read);
  }
  /// The source and token of a read; source 0: there was none.
  DeviceRead read() {
    std::array<DeviceRead, 1> reads;
    const std::size_t count = reads_.read(reads);
    for (auto& source : reads_.take_new_sources()) sources_.push_back(std::move(source));
    return count == 1 ? reads[0] : DeviceRead{};
  }
  /// What the worker finds of it.
  std::vector<EntryTag> tags_of(const DeviceRead& read) {
    for (const auto& source : sources_) {
      if (source->id != read.source) continue;
      std::vector<kernels::TensorStats> stats;
      const kernels::RingReader reader(*source->ring);
      EXPECT_EQ(reader.read(source->ring->latest(), header_, stats), kernels::ReadStatus::ok);
      EXPECT_EQ(header_.token, read.token);
      std::vector<EntryTag> tags;
      for (const kernels::TensorStats& each : stats) tags.push_back(tag_of(each));
      return tags;
    }
    return {};
  }

  alignas(16) std::array<double, 32> values_{};
  DeviceReads reads_;
  std::vector<std::shared_ptr<const DeviceSource>> sources_;
  kernels::SlotHeader header_;
};

constexpr EntryTag kRead = EntryTag::read;
constexpr EntryTag kMissing = EntryTag::missing;

TEST_F(DeviceReadsTest, AGradientThatIsFirstSeenLaterMakesNoNewPass) {
  const auto gradients = params();
  resize(params());
  set(gradients, {1});
  EXPECT_EQ(tags_of(read()), (std::vector{kMissing, kRead, kMissing, kMissing}));
  const int allocations = fake_cuda().allocations;
  for (const std::size_t entry : {std::size_t{0}, std::size_t{3}, std::size_t{2}}) {
    set(gradients, {1, entry});
    EXPECT_EQ(tags_of(read()).at(entry), kRead);
    EXPECT_TRUE(reads_.all_read());
  }
  EXPECT_EQ(sources_.size(), 1u);
  EXPECT_EQ(fake_cuda().allocations, allocations);
}

TEST_F(DeviceReadsTest, WhatThawsOneByOneTakesOneMorePass) {
  const auto gradients = params();
  resize(params(/*trains=*/false));
  for (std::size_t entry = kEntries; entry-- > 0;) {
    set(gradients, {entry});
    EXPECT_EQ(tags_of(read()).at(entry), kRead);
  }
  EXPECT_EQ(sources_.size(), 2u);
}

TEST_F(DeviceReadsTest, LayoutsThatComeBackFindTheirPass) {
  const std::vector single = params();
  std::vector twice = params();
  twice[2] = tensor({12}, at::kDouble);
  resize({});
  std::vector<std::uint64_t> tokens;
  for (int turn = 0; turn < 10; ++turn) {
    set(turn % 2 == 0 ? single : twice, {0, 2});
    const DeviceRead got = read();
    EXPECT_EQ(tags_of(got), (std::vector{kRead, kMissing, kRead, kMissing}));
    tokens.push_back(got.token);
  }
  EXPECT_EQ(sources_.size(), 2u);
  EXPECT_EQ(tokens, (std::vector<std::uint64_t>{1, 1, 2, 2, 3, 3, 4, 4, 5, 5}))
      << "the worker asks each ring in rising order";
}

TEST_F(DeviceReadsTest, AnEntryThatWasAbsentMeanwhileIsComparedWithThePassInUse) {
  std::vector first = params();
  std::vector other = params();
  other[0] = tensor({2});
  other[1] = tensor({3});
  resize({});
  set(first, {0, 1});
  (void)read();
  set(other, {0, 1});
  (void)read();
  set(first, {0});  // the first pass again; entry 1 was last seen as the second has it
  (void)read();
  set(other, {1});
  const DeviceRead got = read();
  EXPECT_EQ(got.source, sources_[1]->id) << "another pass would read beyond its end";
  EXPECT_EQ(tags_of(got).at(1), kRead);
}

TEST_F(DeviceReadsTest, WhatNoPassFitsAnyMoreIsUnsupportedAndTheRestIsRead) {
  const auto gradients = params();
  resize(gradients);
  for (std::int64_t size = 1; size <= 20; ++size) {
    ASSERT_EQ(reads_.set(0, tensor({size})), kRead);
    set(gradients, {1});
    const bool fits = size <= static_cast<std::int64_t>(OneDevice::kMostPasses);
    const EntryTag of_first = fits ? kRead : EntryTag::unsupported;
    EXPECT_EQ(tags_of(read()), (std::vector{of_first, kRead, kMissing, kMissing})) << size;
    EXPECT_EQ(reads_.all_read(), fits) << "a norm of the others is no norm to clip by";
  }
  EXPECT_EQ(sources_.size(), OneDevice::kMostPasses);
  EXPECT_EQ(reads_.set(0, tensor({3})), kRead);
  EXPECT_EQ(tags_of(read()).at(0), kRead) << "a pass that was made is still good";
  EXPECT_TRUE(reads_.all_read());
}

TEST_F(DeviceReadsTest, AnotherPlanOfTheSameTensorsKeepsThePass) {
  const auto gradients = params();
  resize(gradients, 7);
  set(gradients, {0, 1});
  (void)tags_of(read());
  EXPECT_EQ(header_.plan_id, 7u);
  const int allocations = fake_cuda().allocations;
  resize(params(), 8);
  set(gradients, {0, 1});
  (void)tags_of(read());
  EXPECT_EQ(header_.plan_id, 8u);
  EXPECT_EQ(fake_cuda().allocations, allocations);
  EXPECT_EQ(sources_.size(), 1u);
}

TEST_F(DeviceReadsTest, OtherTensorsBeginAnew) {
  const auto gradients = params();
  resize(gradients);
  set(gradients, {0});
  (void)read();
  auto grown = params();
  grown[0] = tensor({32}).set_requires_grad(true);
  resize(grown);
  set(grown, {0});
  EXPECT_EQ(tags_of(read()).at(0), kRead);
  EXPECT_EQ(sources_.size(), 2u);
}

TEST_F(DeviceReadsTest, WhatIsLeftOutBeforeTheFirstTensorIsToldForWhatItIs) {
  const auto gradients = params();
  resize(gradients);
  reads_.leave_out(0, EntryTag::frozen);
  set(gradients, {1});
  EXPECT_EQ(tags_of(read()), (std::vector{EntryTag::frozen, kRead, kMissing, kMissing}));
}

TEST_F(DeviceReadsTest, TheEndOfTheAgentDoesNotWaitForADeviceThatHangs) {
  const auto gradients = params();
  {
    DeviceReads reads;
    reads.resize(std::vector(kEntries, Site::grad), 4, 7, gradients);
    fake_cuda().hangs = true;
    std::array<DeviceRead, 1> out;
    ASSERT_EQ(reads.set(0, gradients[0]), kRead);
    ASSERT_EQ(reads.read(out), 1u);
    fake_cuda().made_current.clear();
  }
  EXPECT_EQ(fake_cuda().frees, 0);
  EXPECT_EQ(fake_cuda().waits, 0);
  EXPECT_TRUE(fake_cuda().made_current.empty());
}

TEST_F(DeviceReadsTest, ACaptureElsewhereLeavesNoErrorForTheProgram) {
  const auto gradients = params();
  resize(gradients);
  set(gradients, {0});
  fake_cuda().capture_query = cudaErrorStreamCaptureImplicit;
  EXPECT_EQ(read().source, 0u);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_FALSE(reads_.all_read());
  EXPECT_EQ(reads_.failure(), "");
  fake_cuda().capture_query = cudaSuccess;
  set(gradients, {0});
  EXPECT_NE(read().source, 0u);
}

TEST_F(DeviceReadsTest, AnErrorThatWasThereBeforeIsTheProgramsToFind) {
  const auto gradients = params();
  resize(gradients);
  set(gradients, {0});
  (void)read();
  fake_cuda().last_error = cudaErrorInvalidValue;
  fake_cuda().capture_query = cudaErrorStreamCaptureImplicit;
  set(gradients, {0});
  (void)read();
  EXPECT_NE(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(DeviceReadsTest, ACaptureInTheWayOfASetUpIsNoReasonToGiveTheDeviceUp) {
  const auto gradients = params();
  resize(gradients);
  for (const cudaError_t error : {cudaErrorStreamCaptureUnsupported,
                                  cudaErrorStreamCaptureInvalidated, cudaErrorCapturedEvent}) {
    fake_cuda().set_up = error;
    set(gradients, {0});
    EXPECT_EQ(read().source, 0u);
    EXPECT_EQ(reads_.failure(), "");
  }
  fake_cuda().set_up = cudaSuccess;
  set(gradients, {0});
  EXPECT_EQ(tags_of(read()).at(0), kRead) << "at once: a capture ends";
}

TEST_F(DeviceReadsTest, ADeviceThatIsLostIsGivenUpAndNamed) {
  const auto gradients = params();
  resize(gradients);
  fake_cuda().set_up = cudaErrorIllegalAddress;
  set(gradients, {0});
  EXPECT_EQ(read().source, 0u);
  EXPECT_NE(reads_.failure().find("CUDA device 0"), std::string::npos);
  EXPECT_FALSE(reads_.takes(gradients[0]));
}

TEST_F(DeviceReadsTest, WithoutMemoryItPausesAndTriesAgain) {
  const auto gradients = params();
  reads_.resize(std::vector(kEntries, Site::grad), 100, 7, gradients);  // a size of its own
  fake_cuda().has_memory = false;
  set(gradients, {0});
  EXPECT_EQ(read().source, 0u);
  EXPECT_FALSE(reads_.all_read());
  fake_cuda().has_memory = true;
  int missed = 0;
  do {
    set(gradients, {0});
    ++missed;
  } while (read().source == 0 && missed < 1000);
  EXPECT_EQ(missed, 65);
}

TEST_F(DeviceReadsTest, NothingIsMadeWhileTheStreamCapturesAndWhatIsThereIsUsed) {
  const auto gradients = params();
  std::vector other = params();
  other[0] = tensor({5});
  resize(gradients);
  fake_cuda().capturing.insert(nullptr);
  set(gradients, {0});
  EXPECT_EQ(read().source, 0u);
  EXPECT_TRUE(reads_.captured());
  EXPECT_EQ(fake_cuda().allocations, 0);
  fake_cuda().capturing.clear();
  set(gradients, {0});
  (void)read();
  set(other, {0});
  (void)read();
  fake_cuda().capturing.insert(nullptr);
  set(gradients, {0});
  EXPECT_EQ(read().source, sources_[0]->id);
  EXPECT_EQ(sources_.size(), 2u);
}

TEST_F(DeviceReadsTest, ACaptureThatBeganAfterTheReadIsNoReasonToGiveTheDeviceUp) {
  const auto gradients = params();
  resize(gradients);
  set(gradients, {0});
  ASSERT_NE(read().source, 0u);
  fake_cuda().capturing.insert(nullptr);
  std::uint64_t waited = 0;
  EXPECT_FALSE(reads_.wait(waited));
  EXPECT_EQ(fake_cuda().waits, 0);
  EXPECT_EQ(reads_.failure(), "");
}

TEST_F(DeviceReadsTest, PassesAreMadeAheadOfTheFirstReadIfTheirTensorsAreKnown) {
  (void)take_set_up_waits();
  reads_.make_ahead();
  EXPECT_EQ(take_set_up_waits(), 0);
  resize(params());
  reads_.make_ahead();
  EXPECT_EQ(take_set_up_waits(), 1);
  set(params(), {0, 1, 2, 3});
  EXPECT_EQ(tags_of(read()), (std::vector{kRead, kRead, kRead, kRead}));
  EXPECT_EQ(take_set_up_waits(), 0);
}

TEST_F(DeviceReadsTest, PassesOfWeightsAreMadeAheadWithTheFrozenOnesAndWhatHasBecomeOfTheTraining) {
  std::vector tensors{tensor({4, 2}).set_requires_grad(true), tensor({3})};  // the second is frozen
  const std::vector changes{tensor({6}, at::kDouble), at::Tensor()};
  reads_.resize({Site::weight, Site::weight, Site::scalar, Site::scalar}, 4, 7, tensors);
  (void)take_set_up_waits();
  reads_.make_ahead(changes);
  EXPECT_EQ(take_set_up_waits(), 1);
  const int allocations = fake_cuda().allocations;
  tensors.push_back(changes[0]);
  set(tensors, {0, 1, 2});
  EXPECT_EQ(tags_of(read()), (std::vector{kRead, kRead, kRead, kMissing}));
  EXPECT_EQ(sources_.size(), 1u);
  EXPECT_EQ(take_set_up_waits(), 0);
  EXPECT_EQ(fake_cuda().allocations, allocations);
}

TEST_F(DeviceReadsTest, ChangesOfAnotherSizeThanWasExpectedTakeOneMorePass) {
  std::vector tensors{tensor({4, 2}).set_requires_grad(true)};
  reads_.resize({Site::weight, Site::scalar}, 4, 7, tensors);
  reads_.make_ahead(std::vector{tensor({6}, at::kDouble)});
  tensors.push_back(tensor({7}, at::kDouble));
  set(tensors, {0, 1});
  EXPECT_EQ(tags_of(read()), (std::vector{kRead, kRead}));
  EXPECT_EQ(sources_.size(), 2u);
}

/// Three gradients, one behind the other, that were read once: of two elements, two and four.
class DeviceClipTest : public DeviceReadsTest {
 protected:
  void SetUp() override {
    DeviceReadsTest::SetUp();
    floats_ = {3, 4};
    reads_.resize(std::vector(3, Site::grad), 4, 7, {});
    set_all();
    EXPECT_NE(read().source, 0u);
  }
  at::Tensor gradient(std::size_t entry) {
    const at::Device device(at::kCUDA, 0);
    return at::for_blob(floats_.data() + 2 * entry, {entry < 2 ? 2 : 4})
        .options(at::TensorOptions().dtype(at::kFloat).device(device))
        .target_device(device)
        .make_tensor();
  }
  void set_all() {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(reads_.set(i, gradient(i)), EntryTag::read);
  }

  alignas(16) std::array<float, 8> floats_{};
};

TEST_F(DeviceClipTest, GradientsAreScaledToTheNormByOneLaunchAndNothingWaits) {
  const FakeCuda before = fake_cuda();
  set_all();
  ASSERT_TRUE(reads_.clip(3, 2.5));
  EXPECT_EQ(fake_cuda().launches, before.launches + 1);
  EXPECT_EQ(fake_cuda().waits, before.waits);
  EXPECT_FLOAT_EQ(floats_[0], 1.5f);
  EXPECT_FLOAT_EQ(floats_[1], 2.0f);
  EXPECT_EQ(read().source, 0u) << "what was clipped is forgotten";
}

TEST_F(DeviceClipTest, WhatDoesNotFitTheReadIsLeftToOthersAndNotScaled) {
  const FakeCuda before = fake_cuda();
  (void)reads_.set(0, gradient(0));
  EXPECT_FALSE(reads_.clip(3, 2.5)) << "two are missing";
  set_all();
  (void)reads_.set(2, gradient(1));
  EXPECT_FALSE(reads_.clip(3, 2.5)) << "another size";
  EXPECT_EQ(fake_cuda().launches, before.launches);
  EXPECT_EQ(floats_[0], 3);
  set_all();
  EXPECT_NE(read().source, 0u) << "the next read is as before";
  set_all();
  EXPECT_TRUE(reads_.clip(3, 2.5)) << "and the next clip";
}

}  // namespace
}  // namespace gradvane::collectors
