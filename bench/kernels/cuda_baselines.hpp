#pragma once
// What the CUDA pass is measured against, and the tools to measure it.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bench/kernels/cuda_bench_cases.hpp"
#include "kernels/device/cuda_handles.hpp"

namespace gradvane::bench {

/// Fills elements [0, numel) with those of a pattern of 2^16 elements, from position `start` on.
void fill(kernels::DType dtype, void* to, const void* pattern, std::int64_t start,
          std::int64_t numel, cudaStream_t stream);

/// Keeps the stream busy for about so long, so that what is enqueued behind it runs without waiting
/// for the host.
void hold(double seconds, cudaStream_t stream);

/// The roofline: reads bytes, sixteen a load and eight loads in flight a thread, and adds their words.
class PlainRead {
 public:
  explicit PlainRead(int device);
  static constexpr int kBlocksToTry[] = {1, 2, 3, 4, 6, 8};  ///< a multiprocessor
  void set_blocks(int each) { blocks_ = each; }
  [[nodiscard]] int blocks() const { return blocks_; }

  /// Of `bytes`, what is left of sixteen is not read. `data` is aligned to as much.
  void enqueue(const void* data, std::int64_t bytes, cudaStream_t stream);
  /// Whether it adds up to what another kernel does. Waits.
  [[nodiscard]] bool correct(const void* data, std::int64_t bytes, cudaStream_t stream);
  [[nodiscard]] std::int64_t extra_bytes() const { return static_cast<std::int64_t>(sums_.size()); }

 private:
  int multiprocessors_ = 1;
  int blocks_ = 4;
  kernels::DeviceMemory sums_;  ///< of all reads; and of the kernel to compare with
};

/// What one would write first: for each tensor a kernel that counts NaN and infinities, one for the sum
/// of squares, one for the largest magnitude and one that counts zeros.
class NaiveCheck {
 public:
  struct Result {
    unsigned long long nonfinite;
    unsigned long long zero;
    double sum_sq;
    unsigned int abs_max;  ///< the bits of a float
    unsigned int unused;
  };

  NaiveCheck(int device, const Case& which);
  void enqueue(std::span<const void* const> data, cudaStream_t stream);
  [[nodiscard]] std::vector<Result> results(cudaStream_t stream) const;  ///< waits
  [[nodiscard]] int launches() const { return 4 * static_cast<int>(numels_.size()); }
  [[nodiscard]] std::int64_t extra_bytes() const {
    return static_cast<std::int64_t>(results_.size());
  }

 private:
  int multiprocessors_ = 1;
  kernels::DType dtype_;
  std::vector<std::int64_t> numels_;
  kernels::DeviceMemory results_;
};

}  // namespace gradvane::bench
