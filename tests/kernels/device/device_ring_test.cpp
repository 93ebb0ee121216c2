// What the device writes into a ring, read by the reader of every ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tests/kernels/device/driven_pass.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels::test {
namespace {

class DeviceRing : public testing::Test {
 protected:
  DeviceRing() {
    std::mt19937_64 random(21);
    for (const std::int64_t numel : {1, 50'000, 300}) {
      tensors_.emplace_back(DType::f32, numel);
      fill_normal(tensors_.back(), random, -4, 4);
    }
    for (const TensorData& tensor : tensors_) {
      shapes_.push_back(tensor.shape());
      data_.push_back(tensor.data());
    }
  }

  /// Reads with element `at` of a tensor set to these bits, and puts it back.
  void read_with(DrivenPass& pass, std::size_t tensor, std::int64_t at, std::uint64_t bits) {
    const std::uint64_t before = tensors_[tensor].bits(at);
    tensors_[tensor].set_bits(at, bits);
    pass.read(data_, ++token_);
    tensors_[tensor].set_bits(at, before);
  }
  void read(DrivenPass& pass) { pass.read(data_, ++token_); }

  std::vector<TensorData> tensors_;
  std::vector<TensorShape> shapes_;
  std::vector<Site> sites_{Site::loss, Site::grad, Site::grad};
  std::vector<const void*> data_;
  std::uint64_t token_ = 100;
  SlotHeader header_;
  std::vector<TensorStats> stats_;
};

TEST_F(DeviceRing, ASlotHasTheHeaderAndTheStatisticsOfItsRead) {
  DrivenPass pass(shapes_, sites_, {});
  RingReader reader(pass.ring());
  EXPECT_EQ(reader.read_next(header_, stats_).status, ReadStatus::empty);
  for (std::uint64_t sequence = 1; sequence <= 10; ++sequence) {
    read(pass);
    ASSERT_EQ(reader.read_next(header_, stats_).status, ReadStatus::ok);
    EXPECT_EQ(header_.sequence, sequence);
    EXPECT_EQ(header_.plan_id, 7u);
    EXPECT_EQ(header_.token, 100 + sequence);
    ASSERT_EQ(header_.tensors, 3);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(stats_[i], pass.stats()[i]));
  }
  EXPECT_EQ(reader.read_next(header_, stats_).status, ReadStatus::empty);
}

TEST_F(DeviceRing, ARecordIsAWholeLineOfMemoryThatNothingElseIsIn) {
  constexpr std::size_t kLine = 128;
  DrivenPass pass(shapes_, sites_, {.ring_slots = 2});
  const SlotRing& ring = pass.ring().slots();
  const std::span<std::byte> memory = ring.memory();
  std::vector<std::size_t> records;  // of the first read's slot
  for (std::size_t i = 0; i < 3; ++i)
    records.push_back(sizeof(RingHeader) + ring.stride_bytes() + sizeof(SlotLock) +
                      record_offset(i));
  for (const std::size_t at : records) {
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(&memory[at]) % kLine, 0u);
    std::fill_n(&memory[at], kLine, std::byte{0xff});
  }
  read(pass);
  for (std::size_t i = 0; i < 3; ++i) {
    std::array<std::byte, kLine> expected{};
    std::memcpy(expected.data(), &pass.stats()[i], sizeof(TensorStats));
    EXPECT_EQ(std::memcmp(expected.data(), &memory[records[i]], kLine), 0) << i;
  }
}

TEST_F(DeviceRing, AFullRingLosesTheOldestAndTheReaderCountsThem) {
  DrivenPass pass(shapes_, sites_, {.ring_slots = 4});
  for (int i = 0; i < 11; ++i) read(pass);
  RingReader reader(pass.ring());
  std::uint64_t lost = 0;
  std::uint64_t read = 0;
  for (;;) {
    const ReadResult result = reader.read_next(header_, stats_);
    lost += result.lost;
    if (result.status != ReadStatus::ok) break;
    ++read;
  }
  EXPECT_EQ(read, 3u) << "the slot to come counts as being overwritten";
  EXPECT_EQ(lost, 8u);
}

TEST_F(DeviceRing, TotalsAndTheFirstBadElementOutliveTheirSlots) {
  DrivenPass pass(shapes_, sites_, {.ring_slots = 2});
  read(pass);
  read_with(pass, 1, 31'234, nan_bits(DType::f32));
  read_with(pass, 2, 7, inf_bits(DType::f32) | sign_bit(DType::f32));
  read_with(pass, 0, 0, inf_bits(DType::f32));
  for (int i = 0; i < 5; ++i) read(pass);

  ASSERT_EQ(RingReader(pass.ring()).read(9, header_, stats_), ReadStatus::ok);
  const RunningTotals& totals = header_.totals;
  const auto loss = static_cast<int>(Site::loss);
  const auto grad = static_cast<int>(Site::grad);
  EXPECT_EQ(totals.reads[loss], 1);
  EXPECT_EQ(totals.reads[grad], 2);
  EXPECT_EQ(totals.elements[grad][0], 1);
  EXPECT_EQ(totals.elements[grad][2], 1);
  EXPECT_EQ(totals.elements[loss][1], 1);
  EXPECT_EQ(totals.first[grad].sequence, 2u);
  EXPECT_EQ(totals.first[grad].tensor, 1);
  EXPECT_EQ(totals.first[grad].element, 31'234);
  EXPECT_EQ(totals.first[grad].kind, static_cast<std::int64_t>(NonfiniteKind::nan));
  EXPECT_EQ(totals.first[loss].sequence, 4u);
  EXPECT_EQ(totals.first[static_cast<int>(Site::weight)].sequence, 0u);
}

TEST_F(DeviceRing, TheNormOnTheDeviceIsThatOfTheGradientsAlone) {
  DrivenPass pass(shapes_, sites_, {});
  read(pass);
  const device::PassState& state = *pass.tables().state;
  const double expected = std::hypot(pass.stats()[1].norm(), pass.stats()[2].norm());
  EXPECT_NEAR(state.gradient_norm, expected, 1e-12 * expected);
  EXPECT_EQ(state.found_nonfinite, 0.0f);

  read_with(pass, 0, 0, nan_bits(DType::f32));  // a loss is no gradient
  EXPECT_NEAR(state.gradient_norm, expected, 1e-12 * expected);
  EXPECT_EQ(state.found_nonfinite, 1.0f) << "but its step is as bad";
  EXPECT_EQ(state.nonfinite_gradients, 0.0f);
  read(pass);
  EXPECT_EQ(state.found_nonfinite, 0.0f);
  read_with(pass, 2, 9, inf_bits(DType::f32));
  EXPECT_EQ(state.gradient_norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(state.found_nonfinite, 1.0f);
  EXPECT_EQ(state.nonfinite_gradients, 1.0f);
  read_with(pass, 1, 9, nan_bits(DType::f32));
  EXPECT_TRUE(std::isnan(state.gradient_norm));
  read(pass);
  EXPECT_EQ(state.found_nonfinite, 0.0f);
  EXPECT_EQ(state.nonfinite_gradients, 0.0f);
}

TEST_F(DeviceRing, TheTicketsAreBackAtZeroAfterEveryRead) {
  DrivenPass pass(shapes_, sites_, {.grid = 5});
  for (int i = 0; i < 3; ++i) {
    read(pass);
    EXPECT_EQ(pass.tables().state->blocks_done, 0u);
    for (int record = 0; record < 2 * pass.tables().plan.blocks; ++record)
      EXPECT_EQ(pass.tables().arrived[record], 0u);
  }
}

}  // namespace
}  // namespace gradvane::kernels::test
