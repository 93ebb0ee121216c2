// The CPU pass against a plain L2 norm over the same bytes. Each iteration times one of each, in
// alternating order, so that whatever else the machine does falls on both; `ratio` is the median of their ratios.
//
//   cpu_pass_bench --benchmark_filter=avx512/bf16/memory
#include "kernels/cpu_pass.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/plain_norm.hpp"
#include "kernels/chunk_plan.hpp"

namespace gradvane::bench {
namespace {

using kernels::ChunkPlan;
using kernels::CpuPass;
using kernels::CpuPath;
using kernels::DType;
using kernels::TensorShape;
using kernels::TensorStats;

enum class Data { uniform, half_zero, all_zero, one_nan_per_mb, all_nan, all_subnormal, tiny };
constexpr const char* kDataNames[] = {"uniform", "half_zero",     "all_zero", "one_nan_per_mb",
                                      "all_nan", "all_subnormal", "tiny"};

constexpr std::int64_t kInCache = std::int64_t{256} << 10;  // fits L2, not L1
constexpr std::int64_t kInMemory = std::int64_t{512} << 20;

// The bits of a value cut to the dtype; enough for a benchmark.
std::uint64_t bits_of(double value, DType dtype) {
  std::uint64_t wide = 0;
  std::memcpy(&wide, &value, sizeof(wide));
  if (dtype == DType::f64) return wide;
  const auto single = static_cast<float>(value);
  std::uint32_t narrow = 0;
  std::memcpy(&narrow, &single, sizeof(narrow));
  if (dtype == DType::f32) return narrow;
  if (dtype == DType::bf16) return narrow >> 16;
  const std::uint32_t sign = narrow >> 31 << 15;
  const int exponent = static_cast<int>(narrow >> 23 & 0xff) - 112;
  if (exponent <= 0) return sign;
  return sign | (static_cast<std::uint32_t>(exponent) << 10 | (narrow >> 13 & 0x3ff));
}

std::uint64_t element(Data data, DType dtype, std::size_t index, std::mt19937_64& random) {
  const double value = std::uniform_real_distribution<double>(0.001, 1)(random);
  const std::uint64_t bits = bits_of((random() & 1) != 0 ? -value : value, dtype);
  const std::uint64_t nan = dtype == DType::f64   ? 0x7ff8000000000000
                            : dtype == DType::f32 ? 0x7fc00000
                            : dtype == DType::f16 ? 0x7e00
                                                  : 0x7fc0;
  switch (data) {
    case Data::uniform:
      return bits;
    case Data::half_zero:
      return (random() & 1) != 0 ? bits : 0;
    case Data::all_zero:
      return 0;
    case Data::one_nan_per_mb:
      return index == 12345 ? nan : bits;
    case Data::all_nan:
      return nan;
    case Data::all_subnormal:
      return 1 + random() % 100;
    case Data::tiny:  // normal, but no sum of squares for a short fp32 run
      return dtype == DType::f16 ? bits
                                 : bits_of(value * (dtype == DType::f64 ? 1e-200 : 1e-20), dtype);
  }
  return 0;
}

// A pattern of 1 MB, repeated: random enough for a pass that carries nothing from run to run.
std::vector<char> make(Data data, DType dtype, std::int64_t bytes) {
  const auto width = static_cast<std::size_t>(size_in_bytes(dtype));
  std::vector<char> all(static_cast<std::size_t>(bytes));
  const std::size_t pattern = std::min(all.size(), std::size_t{1} << 20);
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < pattern / width; ++i) {
    const std::uint64_t bits = element(data, dtype, i, random);
    std::memcpy(all.data() + i * width, &bits, width);
  }
  for (std::size_t at = pattern; at < all.size(); at += pattern) {
    std::memcpy(all.data() + at, all.data(), pattern);
  }
  return all;
}

double seconds(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void pass_against_norm(benchmark::State& state, CpuPath path, DType dtype, Data data,
                       std::int64_t bytes) {
  const std::vector<char> memory = make(data, dtype, bytes);
  const TensorShape shape{bytes / size_in_bytes(dtype), dtype};
  CpuPass pass(ChunkPlan({&shape, 1}), path);
  const void* address = memory.data();
  TensorStats stats;
  // Small data: many reads a timing, so that the clock does not count.
  const int repeats = static_cast<int>(std::max<std::int64_t>(1, (std::int64_t{16} << 20) / bytes));
  std::vector<double> pass_seconds, norm_seconds, ratios;
  const auto time_norm = [&] {
    return seconds([&] {
      for (int i = 0; i < repeats; ++i) {
        benchmark::DoNotOptimize(plain_sum_of_squares(memory.data(), bytes, dtype, path));
      }
    });
  };
  const auto time_pass = [&] {
    return seconds([&] {
      for (int i = 0; i < repeats; ++i) {
        pass.run_blocks({&address, 1}, 0, pass.blocks());
        pass.finish({&stats, 1});
        benchmark::DoNotOptimize(stats);
      }
    });
  };
  bool norm_first = true;
  for (auto _ : state) {
    double norm = norm_first ? time_norm() : 0;
    const double read = time_pass();
    if (!norm_first) norm = time_norm();
    norm_first = !norm_first;
    state.SetIterationTime(read / repeats);
    pass_seconds.push_back(read / repeats);
    norm_seconds.push_back(norm / repeats);
    ratios.push_back(read / norm);
  }
  state.counters["pass_GB/s"] = static_cast<double>(bytes) / median(pass_seconds) * 1e-9;
  state.counters["norm_GB/s"] = static_cast<double>(bytes) / median(norm_seconds) * 1e-9;
  state.counters["ratio"] = median(ratios);
}

void register_all() {
  for (const CpuPath path : {CpuPath::avx2, CpuPath::avx512}) {
    if (!supported(path)) continue;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (int data = 0; data < static_cast<int>(std::size(kDataNames)); ++data) {
        for (const std::int64_t bytes : {kInCache, kInMemory}) {
          const std::string where = bytes == kInCache ? "cache" : "memory";
          const std::string title = std::string(name(path)) + "/" + std::string(name(dtype)) + "/" +
                                    where + "/" + kDataNames[data];
          benchmark::RegisterBenchmark(title.c_str(),
                                       [=](benchmark::State& state) {
                                         pass_against_norm(state, path, dtype,
                                                           static_cast<Data>(data), bytes);
                                       })
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond)
              ->Iterations(bytes == kInCache ? 60 : 15);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradvane::bench

int main(int argc, char** argv) {
  gradvane::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
