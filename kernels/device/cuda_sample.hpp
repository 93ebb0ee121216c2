#pragma once
// Keeps a sample of each tensor's elements on the device, and later says how they changed.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/cuda_handles.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/dtype.hpp"

namespace gradvane::kernels {

/// One tensor's sample: elements [begin, begin + count) of the sample are elements sample_position(i,
/// count, numel) of the tensor.
struct SamplePlace {
  std::int64_t begin = 0;
  std::int64_t count = 0;  ///< 0: not sampled
  std::int64_t numel = 0;
  DType dtype = DType::f32;
};

/// Both calls enqueue on a stream of the caller, allocate nothing, wait for nothing, leave no error
/// behind and are legal while it captures. One stream, or streams ordered by events.
class CudaSample {
 public:
  /// Set-up: allocates 16 bytes an element of the sample. Throws CudaError.
  CudaSample(int device, std::span<const SamplePlace> places);

  /// Keeps the sampled elements as they are. data[i]: address of tensor i; below
  /// device::kAddressLimit: not there.
  cudaError_t keep(std::span<const void* const> data, cudaStream_t stream) noexcept;
  /// Writes how much they have changed since: differences()[begin .. begin + count) of tensor i, fp64.
  cudaError_t difference(std::span<const void* const> data, cudaStream_t stream) noexcept;

  /// On the device, until the next difference() in stream order.
  [[nodiscard]] const double* differences() const noexcept { return differences_; }

 private:
  cudaError_t launch(std::span<const void* const> data, bool keep, cudaStream_t stream) noexcept;

  int device_;
  std::size_t tensors_;
  DeviceMemory memory_;
  const SamplePlace* places_ = nullptr;
  double* kept_ = nullptr;
  double* differences_ = nullptr;
};

}  // namespace gradvane::kernels
