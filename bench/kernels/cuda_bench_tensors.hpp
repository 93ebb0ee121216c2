#pragma once
// The tensors of a case in device memory, in as many copies as it takes to outgrow the L2 cache.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "bench/kernels/cuda_bench_data.hpp"
#include "kernels/device/cuda_handles.hpp"

namespace gradvane::bench {

class NotEnoughMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class BenchTensors {
 public:
  /// Throws NotEnoughMemory. What lies between tensors is NaN: who reads it is found out.
  BenchTensors(const Case& which, const Pattern& pattern, int device, cudaStream_t stream);

  [[nodiscard]] std::size_t copies() const { return copies_; }
  [[nodiscard]] std::span<const void* const> of(std::size_t copy) const {
    return std::span(pointers_).subspan(copy * tensors_, tensors_);
  }
  /// At least as many bytes as the tensors have, in one piece and aligned.
  [[nodiscard]] const void* memory(std::size_t copy) const {
    return memory_.data() + copy * copy_bytes_;
  }
  /// Overwrites all copies with NaN: `width` elements in a row of each `pitch`. Waits.
  void fill_with_nan(std::size_t width = 1, std::size_t pitch = 1);
  /// Overwrites an element of the first copy. Waits.
  void write(std::size_t tensor, std::int64_t index, std::uint32_t bits);

 private:
  kernels::DType dtype_;
  cudaStream_t stream_;
  std::size_t tensors_;
  std::size_t copies_ = 1;
  std::size_t copy_bytes_ = 0;
  kernels::DeviceMemory memory_;
  std::vector<const void*> pointers_;  ///< by copy, then by tensor
};

}  // namespace gradvane::bench
