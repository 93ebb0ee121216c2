// The device's clip, driven on the host: every product against the exact one, and what is left alone.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/device/narrow.hpp"
#include "tests/kernels/device/driven_pass.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels::test {
namespace {

std::uint64_t narrowed(DType dtype, float value) {
  return dtype == DType::bf16 ? device::narrow<DType::bf16>(value)
                              : device::narrow<DType::f16>(value);
}

/// The element nearest to `value`, which is finite: of two, the one whose last bit is 0.
std::uint64_t nearest(DType dtype, long double value) {
  const std::uint64_t largest = inf_bits(dtype) - 1;
  const std::uint64_t below = encode(dtype, static_cast<double>(value));
  const std::uint64_t magnitude = below & ~sign_bit(dtype);
  // Beyond the largest number is one more of the same distance, which is infinity.
  const long double low = std::fabs(decode(dtype, magnitude));
  const long double high = magnitude == largest ? 2 * low - std::fabs(decode(dtype, magnitude - 1))
                                                : std::fabs(decode(dtype, magnitude + 1));
  const long double down = std::fabs(value) - low;
  const long double up = high - std::fabs(value);
  const bool goes_up = up < down || (up == down && (magnitude & 1) != 0);
  return below + (goes_up ? 1 : 0);
}

/// What a clip makes of an element: fp64 in fp64, the others in fp32, and then rounded once.
std::uint64_t product(DType dtype, std::uint64_t bits, double coefficient) {
  if (dtype == DType::f64)
    return std::bit_cast<std::uint64_t>(std::bit_cast<double>(bits) * coefficient);
  // A product of two fp32 is exact in fp64.
  const auto exact = static_cast<double>(decode(dtype, bits)) *
                     static_cast<double>(static_cast<float>(coefficient));
  const auto rounded = static_cast<float>(exact);
  return dtype == DType::f32 ? std::bit_cast<std::uint32_t>(rounded) : nearest(dtype, rounded);
}

TEST(Narrowing, GivesEveryElementBack) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
      const std::uint64_t magnitude = bits & ~sign_bit(dtype);
      if (magnitude > inf_bits(dtype)) continue;
      const float value = dtype == DType::f16
                              ? kernels::value<DType::f16>(static_cast<std::uint16_t>(bits))
                              : kernels::value<DType::bf16>(static_cast<std::uint16_t>(bits));
      ASSERT_EQ(narrowed(dtype, value), bits) << testing::PrintToString(dtype);
    }
}

TEST(Narrowing, RoundsToTheNearestElementAndTiesToEven) {
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto check = [dtype](float value) {
      if (!std::isfinite(value)) return;
      ASSERT_EQ(narrowed(dtype, value), nearest(dtype, value)) << std::hexfloat << value;
    };
    for (int i = 0; i < 200'000; ++i)
      check(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    // Those halfway between two elements, and right beside: subnormal ones and the last before infinity too.
    for (std::uint64_t bits = 0; bits + 1 <= inf_bits(dtype) - 1; bits += 7) {
      const auto middle = static_cast<float>((decode(dtype, bits) + decode(dtype, bits + 1)) / 2);
      for (const float value :
           {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e38f)})
        for (const float signed_value : {value, -value}) check(signed_value);
    }
  }
  EXPECT_EQ(narrowed(DType::f16, 65519.99f), inf_bits(DType::f16) - 1);
  EXPECT_EQ(narrowed(DType::f16, 65520.0f), inf_bits(DType::f16));
  EXPECT_EQ(narrowed(DType::bf16, std::numeric_limits<float>::max()), inf_bits(DType::bf16));
}

TEST(Narrowing, MakesNaNOfNaN) {
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffc00000u})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const std::uint64_t narrow = narrowed(dtype, std::bit_cast<float>(bits));
      EXPECT_GT(narrow & ~sign_bit(dtype), inf_bits(dtype));
    }
}

/// Tensors of every dtype, at any address, tiny, of one chunk, of many and empty.
struct ClippedModel {
  std::vector<TensorData> tensors;
  std::vector<TensorShape> shapes;
  std::vector<Site> sites;
  std::vector<const void*> read;
  std::vector<void*> written;

  explicit ClippedModel(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::int64_t sizes[] = {0, 1, 7, 70, 3000, 40'000, 200'000};
    for (int i = 0; i < 60; ++i) {
      const DType dtype = kAllDTypes[i % 4];
      const auto element = static_cast<std::size_t>(size_in_bytes(dtype));
      tensors.emplace_back(dtype, sizes[random() % 7], random() % 9 * element);
      fill_normal(tensors.back(), random, -14, 3);
      if (tensors.back().numel() > 3) tensors.back().set_bits(2, random() % 5);  // 0, or subnormal
    }
    tensors.emplace_back(DType::bf16, 900'000, 2);  // over many blocks
    fill_normal(tensors.back(), random, -14, 3);
    sites.assign(tensors.size(), Site::grad);
    sites[5] = Site::loss;
    sites[6] = Site::scalar;
    for (TensorData& tensor : tensors) {
      shapes.push_back(tensor.shape());
      read.push_back(tensor.numel() == 0 ? nullptr : tensor.data());
      written.push_back(tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.data()));
    }
  }
};

TEST(DeviceClip, MultipliesEveryGradientAndNothingElse) {
  for (const DriveOptions options :
       {DriveOptions{.grid = 3}, DriveOptions{.grid = 500, .backward = true},
        DriveOptions{.grid = 2, .per_launch = 1}, DriveOptions{.grid = 5, .per_launch = 7}}) {
    const ClippedModel before(3);
    ClippedModel model(3);
    DrivenPass pass(model.shapes, model.sites, options);
    pass.read(model.read);
    model.written[11] = nullptr;  // there when it was read, and not any more
    const double norm = pass.tables().state->gradient_norm;
    pass.clip(model.written, norm / 3);
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {
      SCOPED_TRACE(i);
      const TensorData& was = before.tensors[i];
      const bool is_clipped = model.sites[i] == Site::grad && i != 11;
      for (std::int64_t k = 0; k < was.numel(); ++k) {
        const std::uint64_t expected =
            is_clipped ? product(was.dtype(), was.bits(k), norm / 3 / (norm + 1e-6)) : was.bits(k);
        ASSERT_EQ(model.tensors[i].bits(k), expected) << k;
      }
    }
    EXPECT_EQ(pass.tables().state->gradient_norm, norm);
  }
}

TEST(DeviceClip, WritesNothingToGradientsThatAreSmallEnough) {
  constexpr std::size_t kBytes = 1 << 16;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const TensorShape shape{kBytes / 4, DType::f32};
  const Site site = Site::grad;
  std::vector<float> values(kBytes / 4, 0.5f);
  std::memcpy(memory, values.data(), kBytes);
  DrivenPass pass({&shape, 1}, {&site, 1}, {});
  const void* data = memory;
  pass.read({&data, 1});
  ASSERT_EQ(mprotect(memory, kBytes, PROT_READ), 0);
  pass.clip({&memory, 1}, 1000);  // a write would end the program
  ASSERT_EQ(mprotect(memory, kBytes, PROT_READ | PROT_WRITE), 0);
  pass.clip({&memory, 1}, 1);
  EXPECT_NE(static_cast<float*>(memory)[100], 0.5f) << "the control";
  ASSERT_EQ(munmap(memory, kBytes), 0);
}

TEST(DeviceClip, MultipliesByWhatTorchDoesWhereTheNormIsNotFinite) {
  const TensorShape shape{4, DType::f32};
  const Site site = Site::grad;
  DrivenPass pass({&shape, 1}, {&site, 1}, {});
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    alignas(16) float values[] = {1, -2, bad, 0};
    void* data = &values[0];
    const void* read = data;
    pass.read({&read, 1});
    pass.clip({&data, 1}, 1);
    EXPECT_TRUE(std::isnan(values[2]));
    for (const int k : {0, 1, 3}) {
      if (std::isnan(bad))
        EXPECT_TRUE(std::isnan(values[k]));
      else
        EXPECT_EQ(values[k], 0);
    }
  }
}

}  // namespace
}  // namespace gradvane::kernels::test
