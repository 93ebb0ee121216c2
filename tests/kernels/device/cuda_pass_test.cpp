// The pass on a device: statistics as every pass has them (pass_statistics_cases.cpp), and bit for bit
// what the host makes of the same schedule.
#include "kernels/device/cuda_pass.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/kernels/device/cuda_device.hpp"
#include "tests/kernels/device/driven_pass.hpp"
#include "tests/kernels/pass_under_test.hpp"

namespace gradvane::kernels::test {
namespace {

/// The slot of one read of a pass, waited for.
std::vector<TensorStats> read_on(CudaPass& pass, std::span<const void* const> data,
                                 const Stream& stream, std::uint64_t token = 1) {
  check_cuda("enqueue", pass.enqueue(data, token, stream.get()));
  check_cuda("wait", pass.wait(stream.get()));
  SlotHeader header;
  std::vector<TensorStats> stats;
  EXPECT_EQ(RingReader(pass.ring()).read(pass.ring().latest(), header, stats), ReadStatus::ok);
  EXPECT_EQ(header.token, token);
  return stats;
}

TensorStats read_alone(const TensorData& tensor) {
  const TensorShape shape = tensor.shape();
  const Site site = Site::grad;
  CudaPass pass(0, {&shape, 1}, {&site, 1}, 2, 1);
  const DeviceTensor copy(tensor);
  const void* data = tensor.numel() == 0 ? nullptr : copy.data();
  return read_on(pass, {&data, 1}, Stream())[0];
}

/// Tensors of all kinds on host and device.
struct Model {
  std::vector<TensorData> tensors;
  std::vector<std::unique_ptr<DeviceTensor>> copies;
  std::vector<TensorShape> shapes;
  std::vector<Site> sites;
  std::vector<const void*> host;
  std::vector<const void*> device;

  explicit Model(int count, std::int64_t largest) {
    std::mt19937_64 random(31);
    for (int i = 0; i < count; ++i) {
      const DType dtype = kAllDTypes[random() % 4];
      const auto element = static_cast<std::size_t>(size_in_bytes(dtype));
      const auto bound = static_cast<std::uint64_t>(i % 10 == 0 ? largest : largest / 50);
      const auto numel = static_cast<std::int64_t>(i % 17 == 3 ? 0 : random() % (bound + 1));
      tensors.emplace_back(dtype, numel, random() % 4 * element);
      fill_normal(tensors.back(), random, -12, 3);
      if (numel > 5 && i % 5 == 0) tensors.back().set_bits(numel / 2, nan_bits(dtype));
      if (numel > 5 && i % 3 == 0) tensors.back().set_bits(numel / 3, 0);
    }
    for (const TensorData& tensor : tensors) {
      copies.push_back(std::make_unique<DeviceTensor>(tensor));
      shapes.push_back(tensor.shape());
      sites.push_back(Site::grad);
      host.push_back(tensor.numel() == 0 ? nullptr : tensor.data());
      device.push_back(tensor.numel() == 0 ? nullptr : copies.back()->data());
    }
  }
};

class CudaPassOn : public OnDevice {};

TEST_F(CudaPassOn, ADeviceGivesBitForBitWhatTheHostMakesOfTheSameSchedule) {
  const Model model(60, 400'000);
  CudaPass pass(0, model.shapes, model.sites, 4, 1);
  const std::vector<TensorStats> stats = read_on(pass, model.device, Stream());
  DrivenPass driven(model.shapes, model.sites, {});
  driven.read(model.host);
  for (std::size_t i = 0; i < stats.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(same_bits(stats[i], driven.stats()[i]))
        << testing::PrintToString(stats[i]) << "\n"
        << testing::PrintToString(driven.stats()[i]);
    expect_agrees(stats[i], model.tensors[i]);
  }
}

TEST_F(CudaPassOn, RunsStreamsAndGridSizesDoNotChangeABit) {
  const Model model(300, 3'000'000);
  CudaPass pass(0, model.shapes, model.sites, 4, 1);
  const std::vector<TensorStats> expected = read_on(pass, model.device, Stream());
  for (const int blocks : {1, 2, 3, 57, 132, 1584}) {
    pass.limit_blocks(blocks);
    for (int run = 0; run < 3; ++run) {
      const std::vector<TensorStats> stats = read_on(pass, model.device, Stream());
      for (std::size_t i = 0; i < stats.size(); ++i)
        ASSERT_TRUE(same_bits(stats[i], expected[i]))
            << "tensor " << i << ", " << blocks << " blocks";
    }
  }
}

TEST_F(CudaPassOn, TenThousandTensorsAreReadInThreeLaunches) {
  const Model model(10'000, 20'000);
  CudaPass pass(0, model.shapes, model.sites, 2, 1);
  EXPECT_EQ(pass.launches(), 3);
  const std::vector<TensorStats> stats = read_on(pass, model.device, Stream());
  for (std::size_t i = 0; i < stats.size(); ++i) {
    SCOPED_TRACE(i);
    expect_agrees(stats[i], model.tensors[i]);
  }
}

TEST_F(CudaPassOn, TheNormAndTheFlagOnTheDeviceAreThoseOfTheSlot) {
  Model model(50, 100'000);
  CudaPass pass(0, model.shapes, model.sites, 2, 1);
  const Stream stream;
  const auto on_device = [&] {
    double norm = 0;
    float found = 0;
    check_cuda("cudaMemcpy",
               cudaMemcpy(&norm, pass.gradient_norm(), sizeof(norm), cudaMemcpyDeviceToHost));
    check_cuda("cudaMemcpy",
               cudaMemcpy(&found, pass.found_nonfinite(), sizeof(found), cudaMemcpyDeviceToHost));
    return std::pair(norm, found);
  };
  (void)read_on(pass, model.device, stream);
  EXPECT_TRUE(std::isnan(on_device().first));
  EXPECT_EQ(on_device().second, 1.0f);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    TensorData& tensor = model.tensors[i];
    if (tensor.numel() <= 5) continue;
    tensor.set(tensor.numel() / 2, 1);
    model.copies[i]->upload(tensor);
  }
  double squares = 0;
  for (const TensorStats& stats : read_on(pass, model.device, stream)) squares += stats.sum_sq;
  EXPECT_NEAR(on_device().first, std::sqrt(squares), 1e-12 * std::sqrt(squares));
  EXPECT_EQ(on_device().second, 0.0f);
}

TEST_F(CudaPassOn, AClipGivesBitForBitWhatTheHostMakesOfIt) {
  for (const int count : {60, 1000}) {
    Model model(count, 3'000'000 / count);
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {  // no NaN
      std::mt19937_64 random(i);
      fill_normal(model.tensors[i], random, -30, 15);  // fp16 gets subnormal, and stays finite
      model.copies[i]->upload(model.tensors[i]);
    }
    CudaPass pass(0, model.shapes, model.sites, 2, 1);
    DrivenPass driven(model.shapes, model.sites, {});
    const Stream stream;
    (void)read_on(pass, model.device, stream);
    driven.read(model.host);
    const double norm = driven.tables().state->gradient_norm;
    std::vector<void*> on_device;
    std::vector<void*> on_host;
    for (std::size_t i = 0; i < model.host.size(); ++i) {
      on_device.push_back(const_cast<void*>(model.device[i]));
      on_host.push_back(const_cast<void*>(model.host[i]));
    }
    for (const double max_norm : {2 * norm, norm / 3}) {
      bool has_begun = false;
      check_cuda("clip", pass.clip(on_device, max_norm, stream.get(), has_begun));
      EXPECT_TRUE(has_begun);
      driven.clip(on_host, max_norm);
      stream.finish();
      for (std::size_t i = 0; i < model.tensors.size(); ++i)
        ASSERT_EQ(model.copies[i]->bytes(), model.tensors[i].bytes()) << "tensor " << i;
    }
  }
}

TEST_F(CudaPassOn, MemoryFreedAndReusedBetweenReadsIsReadAsItIsThen) {
  std::mt19937_64 random(32);
  const TensorShape shape{5000, DType::f32};
  const Site site = Site::grad;
  CudaPass pass(0, {&shape, 1}, {&site, 1}, 2, 1);
  const Stream stream;
  for (int step = 0; step < 20; ++step) {
    TensorData tensor(DType::f32, 5000);
    fill_normal(tensor, random, -5, 5);
    const DeviceTensor copy(tensor);  // often at the last one's address
    const void* data = copy.data();
    expect_agrees(read_on(pass, {&data, 1}, stream)[0], tensor);
  }
}

}  // namespace

std::vector<PassUnderTest> passes_under_test() {
  PassUnderTest pass{.name = "cuda"};
  pass.missing = missing_device();
  pass.required = device_tests_must_run();
  pass.read = read_alone;
  pass.run_bytes = 4096;
  pass.any_address = false;
  pass.any_alignment = false;
  return {pass};
}

}  // namespace gradvane::kernels::test
