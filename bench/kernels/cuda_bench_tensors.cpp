#include "bench/kernels/cuda_bench_tensors.hpp"

#include <algorithm>
#include <string>

#include "bench/kernels/cuda_baselines.hpp"

namespace gradvane::bench {
namespace {

using kernels::check_cuda;

constexpr std::size_t kAlignment = 512;  // torch's allocator begins blocks there
constexpr std::size_t kAtLeast = std::size_t{512} << 20;
constexpr std::size_t kSpare = std::size_t{512} << 20;  // for tables and results

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
  return free;
}

std::size_t cache_bytes(int device) {
  int bytes = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
  return static_cast<std::size_t>(bytes);
}

}  // namespace

BenchTensors::BenchTensors(const Case& which, const Pattern& pattern, int device,
                           cudaStream_t stream)
    : dtype_(which.dtype), stream_(stream), tensors_(which.numels.size()) {
  const auto width = static_cast<std::size_t>(size_in_bytes(dtype_));
  const std::size_t offset = static_cast<std::size_t>(which.offset) * width;
  std::vector<std::size_t> begins;
  for (const std::int64_t numel : which.numels) {
    begins.push_back(copy_bytes_ + offset);
    const std::size_t end = begins.back() + static_cast<std::size_t>(numel) * width;
    copy_bytes_ = (end + kAlignment - 1) / kAlignment * kAlignment;
  }

  const std::size_t free = free_memory();
  if (copy_bytes_ + kSpare > free) {
    throw NotEnoughMemory("needs " + std::to_string(copy_bytes_ + kSpare) + " bytes, " +
                          std::to_string(free) + " are free");
  }
  const std::size_t wanted = std::max(kAtLeast, 8 * cache_bytes(device));
  copies_ = std::clamp<std::size_t>((wanted + copy_bytes_ - 1) / copy_bytes_, 1,
                                    (free - kSpare) / copy_bytes_);
  memory_ = kernels::DeviceMemory(copies_ * copy_bytes_);

  kernels::DeviceMemory on_device(pattern.bytes().size());
  kernels::copy_to_device(on_device.data(), pattern.bytes());
  fill_with_nan();
  for (std::size_t i = 0; i < tensors_; ++i) {
    fill(dtype_, memory_.data() + begins[i], on_device.data(), Pattern::start(i), which.numels[i],
         stream);
  }
  for (std::size_t copy = 1; copy < copies_; ++copy) {
    check_cuda("cudaMemcpyAsync",
               cudaMemcpyAsync(memory_.data() + copy * copy_bytes_, memory_.data(), copy_bytes_,
                               cudaMemcpyDeviceToDevice, stream));
  }
  check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream));
  for (std::size_t copy = 0; copy < copies_; ++copy) {
    for (const std::size_t begin : begins) {
      pointers_.push_back(memory_.data() + copy * copy_bytes_ + begin);
    }
  }
}

void BenchTensors::fill_with_nan(std::size_t width, std::size_t pitch) {
  const auto element = static_cast<std::size_t>(size_in_bytes(dtype_));
  if (width == pitch)
    check_cuda("cudaMemsetAsync", cudaMemsetAsync(memory_.data(), 0xff, memory_.size(), stream_));
  else
    check_cuda("cudaMemset2DAsync",
               cudaMemset2DAsync(memory_.data(), pitch * element, 0xff, width * element,
                                 memory_.size() / (pitch * element), stream_));
  check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream_));
}

void BenchTensors::write(std::size_t tensor, std::int64_t index, std::uint32_t bits) {
  const std::int64_t width = size_in_bytes(dtype_);
  auto* at = static_cast<std::byte*>(const_cast<void*>(pointers_[tensor])) + index * width;
  check_cuda("cudaMemcpyAsync", cudaMemcpyAsync(at, &bits, static_cast<std::size_t>(width),
                                                cudaMemcpyHostToDevice, stream_));
  check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream_));
}

}  // namespace gradvane::bench
