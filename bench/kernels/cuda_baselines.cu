#include <algorithm>
#include <stdexcept>

#include "bench/kernels/cuda_baselines.hpp"
#include "kernels/element.hpp"

namespace gradvane::bench {
namespace {

using kernels::Bits;
using kernels::check_cuda;
using kernels::DType;
using kernels::value;

constexpr int kThreads = 256;
constexpr int kLoads = 8;
constexpr std::int64_t kTile = std::int64_t{kThreads} * kLoads;  // vectors
constexpr std::int64_t kPattern = 1 << 16;

void check_launch() { check_cuda("kernel launch", cudaGetLastError()); }

int multiprocessors_of(int device) {
  int count = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

__device__ std::int64_t global_thread() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::int64_t all_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

__global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

template <class Word>
__global__ void copy_pattern(Word* to, const Word* pattern, std::int64_t start,
                             std::int64_t numel) {
  for (std::int64_t i = global_thread(); i < numel; i += all_threads()) {
    to[i] = pattern[(start + i) % kPattern];
  }
}

/// In thread 0 of the block.
template <class T>
__device__ T sum_of_block(T mine) {
  __shared__ T sums[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    mine += __shfl_down_sync(0xffffffff, mine, distance);
  }
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) mine += sums[warp];
  }
  return mine;
}

__device__ uint4 load(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(at)));
  return v;
}

__global__ void __launch_bounds__(kThreads)
    read_all(const uint4* data, std::int64_t vectors, unsigned int* sum) {
  unsigned int mine = 0;
  const std::int64_t tiles = vectors / kTile;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint4* from = data + tile * kTile + threadIdx.x;
    uint4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = load(from + i * kThreads);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) mine += v[i].x + v[i].y + v[i].z + v[i].w;
  }
  for (std::int64_t i = tiles * kTile + global_thread(); i < vectors; i += all_threads()) {
    const uint4 v = load(data + i);
    mine += v.x + v.y + v.z + v.w;
  }
  mine = sum_of_block(mine);
  if (threadIdx.x == 0) atomicAdd(sum, mine);
}

__global__ void add_words(const unsigned int* data, std::int64_t words, unsigned int* sum) {
  unsigned int mine = 0;
  for (std::int64_t i = global_thread(); i < words; i += all_threads()) mine += data[i];
  mine = sum_of_block(mine);
  if (threadIdx.x == 0) atomicAdd(sum, mine);
}

template <DType dtype>
__global__ void count_nonfinite(const Bits<dtype>* data, std::int64_t numel,
                                unsigned long long* count) {
  unsigned long long mine = 0;
  for (std::int64_t i = global_thread(); i < numel; i += all_threads()) {
    const float x = value<dtype>(data[i]);
    mine += isnan(x) || isinf(x);
  }
  mine = sum_of_block(mine);
  if (threadIdx.x == 0 && mine != 0) atomicAdd(count, mine);
}

template <DType dtype>
__global__ void add_squares(const Bits<dtype>* data, std::int64_t numel, double* sum) {
  float mine = 0;
  for (std::int64_t i = global_thread(); i < numel; i += all_threads()) {
    const float x = value<dtype>(data[i]);
    mine += x * x;
  }
  const double all = sum_of_block(static_cast<double>(mine));
  if (threadIdx.x == 0) atomicAdd(sum, all);
}

template <DType dtype>
__global__ void find_largest(const Bits<dtype>* data, std::int64_t numel, unsigned int* largest) {
  float mine = 0;
  for (std::int64_t i = global_thread(); i < numel; i += all_threads()) {
    mine = fmaxf(mine, fabsf(value<dtype>(data[i])));
  }
  // Of magnitudes, the bits have the order of the values.
  const unsigned int of_warp = __reduce_max_sync(0xffffffff, __float_as_uint(mine));
  if (threadIdx.x % 32 == 0) atomicMax(largest, of_warp);
}

template <DType dtype>
__global__ void count_zeros(const Bits<dtype>* data, std::int64_t numel,
                            unsigned long long* count) {
  unsigned long long mine = 0;
  for (std::int64_t i = global_thread(); i < numel; i += all_threads()) {
    mine += value<dtype>(data[i]) == 0;
  }
  mine = sum_of_block(mine);
  if (threadIdx.x == 0 && mine != 0) atomicAdd(count, mine);
}

template <DType dtype>
void check_tensor(const void* tensor, std::int64_t numel, NaiveCheck::Result* result, int blocks,
                  cudaStream_t stream) {
  const auto* data = static_cast<const Bits<dtype>*>(tensor);
  count_nonfinite<dtype><<<blocks, kThreads, 0, stream>>>(data, numel, &result->nonfinite);
  add_squares<dtype><<<blocks, kThreads, 0, stream>>>(data, numel, &result->sum_sq);
  find_largest<dtype><<<blocks, kThreads, 0, stream>>>(data, numel, &result->abs_max);
  count_zeros<dtype><<<blocks, kThreads, 0, stream>>>(data, numel, &result->zero);
}

int blocks_for(std::int64_t items, int most) {
  return static_cast<int>(std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, most));
}

}  // namespace

void fill(DType dtype, void* to, const void* pattern, std::int64_t start, std::int64_t numel,
          cudaStream_t stream) {
  const int blocks = blocks_for(numel, 4096);
  if (size_in_bytes(dtype) == 2) {
    copy_pattern<<<blocks, kThreads, 0, stream>>>(
        static_cast<std::uint16_t*>(to), static_cast<const std::uint16_t*>(pattern), start, numel);
  } else {
    copy_pattern<<<blocks, kThreads, 0, stream>>>(
        static_cast<std::uint32_t*>(to), static_cast<const std::uint32_t*>(pattern), start, numel);
  }
  check_launch();
}

void hold(double seconds, cudaStream_t stream) {
  constexpr double kClock = 2e9;  // about; it need not be exact
  spin<<<1, 1, 0, stream>>>(static_cast<long long>(seconds * kClock));
  check_launch();
}

PlainRead::PlainRead(int device)
    : multiprocessors_(multiprocessors_of(device)), sums_(2 * sizeof(unsigned int)) {}

void PlainRead::enqueue(const void* data, std::int64_t bytes, cudaStream_t stream) {
  read_all<<<blocks_ * multiprocessors_, kThreads, 0, stream>>>(
      static_cast<const uint4*>(data), bytes / static_cast<std::int64_t>(sizeof(uint4)),
      reinterpret_cast<unsigned int*>(sums_.data()));
  check_launch();
}

bool PlainRead::correct(const void* data, std::int64_t bytes, cudaStream_t stream) {
  check_cuda("cudaMemsetAsync", cudaMemsetAsync(sums_.data(), 0, sums_.size(), stream));
  enqueue(data, bytes, stream);
  add_words<<<4 * multiprocessors_, kThreads, 0, stream>>>(
      static_cast<const unsigned int*>(data), bytes / 16 * 4,
      reinterpret_cast<unsigned int*>(sums_.data()) + 1);
  check_launch();
  unsigned int sums[2] = {};
  check_cuda("cudaMemcpyAsync",
             cudaMemcpyAsync(sums, sums_.data(), sizeof(sums), cudaMemcpyDeviceToHost, stream));
  check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream));
  return sums[0] == sums[1];
}

NaiveCheck::NaiveCheck(int device, const Case& which)
    : multiprocessors_(multiprocessors_of(device)),
      dtype_(which.dtype),
      numels_(which.numels),
      results_(which.numels.size() * sizeof(Result)) {}

void NaiveCheck::enqueue(std::span<const void* const> data, cudaStream_t stream) {
  check_cuda("cudaMemsetAsync", cudaMemsetAsync(results_.data(), 0, results_.size(), stream));
  auto* results = reinterpret_cast<Result*>(results_.data());
  for (std::size_t i = 0; i < numels_.size(); ++i) {
    const int blocks = blocks_for(numels_[i], 8 * multiprocessors_);
    switch (dtype_) {
      case DType::f32:
        check_tensor<DType::f32>(data[i], numels_[i], results + i, blocks, stream);
        break;
      case DType::f16:
        check_tensor<DType::f16>(data[i], numels_[i], results + i, blocks, stream);
        break;
      case DType::bf16:
        check_tensor<DType::bf16>(data[i], numels_[i], results + i, blocks, stream);
        break;
      case DType::f64:
        throw std::invalid_argument("cuda_pass_bench has no data in f64");
    }
  }
  check_launch();
}

std::vector<NaiveCheck::Result> NaiveCheck::results(cudaStream_t stream) const {
  std::vector<Result> all(numels_.size());
  check_cuda("cudaMemcpyAsync", cudaMemcpyAsync(all.data(), results_.data(), results_.size(),
                                                cudaMemcpyDeviceToHost, stream));
  check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream));
  return all;
}

}  // namespace gradvane::bench
