// The device's pass, driven on the host: statistics as every pass has them (pass_statistics_cases.cpp),
// and what its schedule promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/device/packed.hpp"
#include "kernels/device/part_reader.hpp"
#include "tests/kernels/device/driven_pass.hpp"
#include "tests/kernels/pass_under_test.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels::test {

std::vector<PassUnderTest> passes_under_test() {
  PassUnderTest forward{.name = "driven"};
  forward.read = [](const TensorData& tensor) { return read_driven(tensor, {.grid = 1}); };
  forward.run_bytes = 4096;  // what a warp reads at once
  forward.any_address = false;
  forward.any_alignment = false;
  forward.takes_large_tensors = false;
  return {forward};
}

namespace {

using device::kThreads;

/// Tensors of every dtype, tiny, of one chunk, of many, empty and absent, and where they are.
struct Model {
  std::vector<TensorData> tensors;
  std::vector<TensorShape> shapes;
  std::vector<Site> sites;
  std::vector<const void*> data;

  void add(DType dtype, std::int64_t numel, std::mt19937_64& random) {
    const auto element = static_cast<std::size_t>(size_in_bytes(dtype));
    tensors.emplace_back(dtype, numel, random() % 4 * element);
    fill_normal(tensors.back(), random, -12, 3);
  }
  void finish() {
    for (const TensorData& tensor : tensors) {
      shapes.push_back(tensor.shape());
      sites.push_back(Site::grad);
      data.push_back(tensor.numel() == 0 ? nullptr : tensor.data());
    }
  }
};

Model mixed_model() {
  std::mt19937_64 random(11);
  Model model;
  model.add(DType::bf16, 0, random);  // before the first block
  for (int i = 0; i < 40; ++i) {
    const DType dtype = kAllDTypes[random() % 4];
    const std::int64_t sizes[] = {0, 1, 70, 3000, 40'000, 200'000};
    model.add(dtype, sizes[random() % 6], random);
  }
  model.add(DType::f16, 600'000, random);  // over many blocks
  model.add(DType::f32, 0, random);
  model.finish();
  return model;
}

std::vector<TensorStats> read_all(const Model& model, DriveOptions options) {
  DrivenPass pass(model.shapes, model.sites, options);
  pass.read(model.data);
  return {pass.stats().begin(), pass.stats().end()};
}

TEST(DeviceSchedule, ReadsEveryTensorOfAMixedModel) {
  const Model model = mixed_model();
  const std::vector<TensorStats> stats = read_all(model, {});
  for (std::size_t i = 0; i < stats.size(); ++i) {
    SCOPED_TRACE(i);
    expect_agrees(stats[i], model.tensors[i]);
  }
}

TEST(DeviceSchedule, GivesTheSameBitsForAnyGridOrderOfThreadsAndNumberOfLaunches) {
  const Model model = mixed_model();
  const std::vector<TensorStats> expected = read_all(model, {.grid = 1});
  for (const DriveOptions options :
       {DriveOptions{.grid = 2}, DriveOptions{.grid = 7, .backward = true},
        DriveOptions{.grid = 500}, DriveOptions{.grid = 3, .per_launch = 1},
        DriveOptions{.grid = 5, .per_launch = 7, .backward = true}}) {
    SCOPED_TRACE(testing::Message() << "grid " << options.grid << ", " << options.per_launch);
    const std::vector<TensorStats> stats = read_all(model, options);
    for (std::size_t i = 0; i < stats.size(); ++i)
      EXPECT_TRUE(same_bits(stats[i], expected[i])) << i;
  }
}

/// Loads of each vector, on average, by a block whose part of a tensor has `groups` groups for each thread.
/// @param bits  the bits of an element, by its index
template <DType dtype, class BitsOf>
double loads_per_vector(int groups, BitsOf&& bits) {
  const std::int64_t kVectors = std::int64_t{groups} * device::kGroup * kThreads;
  const std::int64_t kElements =
      kVectors * static_cast<std::int64_t>(sizeof(device::Vector)) / size_in_bytes(dtype);
  TensorData tensor(dtype, kElements);
  tensor.fill_bits(bits);
  const device::Share share{static_cast<const std::byte*>(tensor.data()), {0, 0, kElements}};
  std::vector<TensorStats> exact(kThreads);
  FiberLane::loads = 0;
  FiberBlock fibers(kThreads, FiberBlock::Order::forward);
  fibers.run([&](int thread) {
    FiberLane lane(fibers, thread, 0, 1);
    device::PartReader<dtype, kThreads, FiberLane>(lane, share,
                                                   exact[static_cast<std::size_t>(thread)])
        .read();
  });
  return static_cast<double>(FiberLane::loads) / static_cast<double>(kVectors);
}

template <DType dtype>
void expect_each_loaded_once(const std::vector<std::uint64_t>& kinds) {
  const std::uint64_t one = encode(dtype, 1);
  for (const std::uint64_t bits : kinds)
    for (const std::int64_t each : {1, 2})
      EXPECT_LT(
          loads_per_vector<dtype>(24, [&](std::int64_t i) { return i % each == 0 ? bits : one; }),
          1.2)
          << std::hex << bits << ", each of " << each;
}

TEST(DeviceSchedule, LoadsDataOnceThatIsTheSameFromEndToEnd) {
  expect_each_loaded_once<DType::bf16>({0x3f80, 0, 0x7fc0, 0x7f80, 0xff80, 0x6000, 0x0001});
  expect_each_loaded_once<DType::f16>({0x3c00, 0, 0x7e00, 0x7c00, 0xfc00, 0x0001});
  expect_each_loaded_once<DType::f32>(
      {0x3f800000, 0, 0x7fc00000, 0x7f800000, 0xff800000, 0x60000000, 0x00000001});
}

/// As the gradient of an embedding: rows of 1,536 bytes, of which `share` in a thousand are zero.
template <DType dtype>
double loads_with_zero_rows(std::uint32_t share) {
  std::mt19937 random(3);
  const std::int64_t row = 1536 / size_in_bytes(dtype);
  std::vector<bool> is_zero;
  const std::uint64_t one = encode(dtype, 1);
  return loads_per_vector<dtype>(48, [&](std::int64_t i) {
    const auto which = static_cast<std::size_t>(i / row);
    while (is_zero.size() <= which) is_zero.push_back(random() % 1000 < share);
    return is_zero[which] ? std::uint64_t{0} : one;
  });
}

TEST(DeviceSchedule, LoadsNearlyEachVectorOnceWhereSomeRowsAreZero) {
  for (const std::uint32_t share : {1u, 5u, 10u, 50u, 100u, 200u, 500u, 900u}) {
    EXPECT_LT(loads_with_zero_rows<DType::bf16>(share), 1.1) << share;
    EXPECT_LT(loads_with_zero_rows<DType::f32>(share), 1.1) << share;
  }
}

/// Each second row of so many bytes is NaN.
template <DType dtype>
double loads_with_nan_rows(std::int64_t bytes, std::uint64_t nan) {
  const std::int64_t row = bytes / size_in_bytes(dtype);
  return loads_per_vector<dtype>(
      48, [&](std::int64_t i) { return i / row % 2 == 0 ? nan : encode(dtype, 1); });
}

TEST(DeviceSchedule, LoadsNearlyEachVectorOnceWhereRowsOfNanTakeTurnsAndNoneMoreThanTwice) {
  for (const std::int64_t bytes : {32, 128, 1536, 8192, 32768, 131072}) {
    const double most = bytes > 8192 ? 2.01 : 1.1;  // a group of a block is 32 KiB
    EXPECT_LT(loads_with_nan_rows<DType::bf16>(bytes, 0x7fc0), most) << bytes;
    EXPECT_LT(loads_with_nan_rows<DType::f16>(bytes, 0x7e00), most) << bytes;
    EXPECT_LT(loads_with_nan_rows<DType::f32>(bytes, 0x7fc00000), most) << bytes;
  }
}

// The order of group.hpp, part_reader.hpp and block_program.hpp, written again as plainly as it can be.
class PlainOrder {
 public:
  /// Sum of squares of finite, normal fp32 elements of magnitude around 1, at an aligned address.
  static double sum_sq(const TensorData& tensor) {
    const DrivenPass plan({{tensor.shape()}}, {{Site::grad}}, {});  // for the blocks alone
    const ChunkPlanView& view = plan.tables().plan;
    std::vector<double> parts;
    for (int block = 0; block < view.blocks; ++block) {
      view.for_each_part(block, [&](const TensorPart& part) {
        parts.push_back(of_part(tensor, part.begin, part.end));
      });
    }
    if (parts.size() == 1) return parts[0];
    std::vector<double> half_warps(kThreads / 16);
    for (std::size_t i = 0; i < parts.size(); ++i) half_warps[i % half_warps.size()] += parts[i];
    return even_and_odd(half_warps);
  }

 private:
  /// The even ones in their order, plus the odd ones in theirs.
  static double even_and_odd(const std::vector<double>& values) {
    double sums[2] = {0, 0};
    for (std::size_t i = 0; i < values.size(); ++i) sums[i % 2] += values[i];
    return sums[0] + sums[1];
  }

  static double of_part(const TensorData& tensor, std::int64_t begin, std::int64_t end) {
    const bool tiny = tensor.numel() * 4 <= device::kTinyBytes;
    const std::int64_t team = tiny ? 32 : kThreads;
    std::vector<double> threads(static_cast<std::size_t>(team));
    for (std::int64_t at = begin; at < end; at += team * 32) {
      for (std::int64_t thread = 0; thread < team; ++thread)
        threads[static_cast<std::size_t>(thread)] += of_group(tensor, at, end, team, thread);
    }
    // Within a warp by halves.
    std::vector<double> warps;
    for (std::size_t warp = 0; warp < threads.size(); warp += 32) {
      for (std::size_t width = 16; width > 0; width /= 2)
        for (std::size_t i = 0; i < width; ++i) threads[warp + i] += threads[warp + i + width];
      warps.push_back(threads[warp]);
    }
    return even_and_odd(warps);
  }

  /// Eight vectors of four, `team` vectors apart; even elements to one accumulator, odd ones to another.
  static double of_group(const TensorData& tensor, std::int64_t at, std::int64_t end,
                         std::int64_t team, std::int64_t thread) {
    float sums[2] = {0, 0};
    for (std::int64_t vector = 0; vector < 8; ++vector) {
      for (std::int64_t j = 0; j < 4; ++j) {
        const std::int64_t index = at + (vector * team + thread) * 4 + j;
        if (index >= end) continue;
        const auto x = static_cast<float>(decode(DType::f32, tensor.bits(index)));
        float& sum = sums[j % 2];
        sum = std::fma(x, x, sum);
      }
    }
    return static_cast<double>(sums[0] + sums[1]);
  }
};

TEST(DeviceSchedule, AddsInTheOrderThatItsHeadersState) {
  std::mt19937_64 random(12);
  for (const std::int64_t numel :
       {4, 128, 1024, 2044, 2048, 2052, 8192, 8196, 40'000, 300'000, 3'000'000}) {
    SCOPED_TRACE(numel);
    TensorData tensor(DType::f32, numel);
    fill_normal(tensor, random, -3, 3);
    EXPECT_EQ(read_driven(tensor).sum_sq, PlainOrder::sum_sq(tensor));
  }
}

TEST(DeviceSchedule, AnAbsentTensorSaysWhyAndLeavesTheOthersAlone) {
  const Model model = mixed_model();
  DrivenPass pass(model.shapes, model.sites, {});
  pass.read(model.data);
  const std::vector<TensorStats> before(pass.stats().begin(), pass.stats().end());
  std::vector<const void*> some = model.data;
  for (std::size_t i = 0; i < some.size(); i += 3)
    some[i] = std::bit_cast<const void*>(std::uintptr_t{i % 5});
  pass.read(some);
  for (std::size_t i = 0; i < some.size(); ++i) {
    SCOPED_TRACE(i);
    if (i % 3 != 0) {
      EXPECT_TRUE(same_bits(pass.stats()[i], before[i]));
    } else {
      TensorStats absent;
      absent.absence = static_cast<std::int16_t>(i % 5);
      EXPECT_TRUE(same_bits(pass.stats()[i], absent));
    }
  }
  pass.read(model.data);  // nothing of it stays
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(same_bits(pass.stats()[i], before[i]));
}

TEST(DeviceSchedule, ReadsAThousandTensorsInThreeLaunches) {
  std::mt19937_64 random(13);
  Model model;
  for (int i = 0; i < 1000; ++i)
    model.add(kAllDTypes[i % 4], static_cast<std::int64_t>(random() % 300), random);
  model.finish();
  DrivenPass pass(model.shapes, model.sites, {.grid = 2, .per_launch = 400});
  pass.read(model.data);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    SCOPED_TRACE(i);
    expect_agrees(pass.stats()[i], model.tensors[i]);
  }
}

TEST(DeviceSchedule, APlanWithoutAnyElementPublishesToo) {
  const std::vector<TensorShape> shapes(3);
  const std::vector<Site> sites(3, Site::grad);
  DrivenPass pass(shapes, sites, {});
  const std::vector<const void*> data(3, nullptr);
  pass.read(data, 5);
  EXPECT_EQ(pass.ring().latest(), 1u);
  DrivenPass empty({}, {}, {});
  empty.read({});
  EXPECT_EQ(empty.ring().latest(), 1u);
}

TEST(DeviceSchedule, TheLaunchesOfAPlanCoverEveryTensorAndBlockOfItOnce) {
  const Model model = mixed_model();
  const device::PlanTables tables(model.shapes, model.sites);
  for (const std::int64_t most : {1, 2, 5, 17, 1000}) {
    std::int64_t tensor = 0;
    int block = 0;
    for (const device::LaunchRange& range : tables.launches(most)) {
      EXPECT_EQ(range.tensor_begin, tensor);
      EXPECT_LE(range.tensor_end - range.tensor_begin, most);
      EXPECT_LE(range.block_begin, block) << "no block is left out";
      tensor = range.tensor_end;
      block = range.block_end;
    }
    EXPECT_EQ(tensor, static_cast<std::int64_t>(model.shapes.size()));
  }
}

TEST(PackedOperations, CountTheLanesOfMasksFromTheirPlainSum) {
  std::mt19937_64 random(14);
  for (int trial = 0; trial < 1000; ++trial) {
    std::uint32_t sum = 0;
    std::uint32_t lanes = 0;
    for (int i = 0; i < 32; ++i) {
      const bool low = (random() & 1) != 0;
      const bool high = (random() & 1) != 0;
      sum += (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u);
      lanes += (low ? 1u : 0u) + (high ? 1u : 0u);
    }
    EXPECT_EQ(device::set_lanes(sum), lanes);
  }
  EXPECT_EQ(device::set_lanes(0), 0u);
  EXPECT_EQ(device::set_lanes(32 * 0xffffffffu), 64u);
}

}  // namespace
}  // namespace gradvane::kernels::test
