#pragma once
// Kernels that only take time, or not even that.
#include <cuda_runtime_api.h>

#include <chrono>

namespace gradvane::bench {

/// One thread that spins for so long by the device's own clock. Returns at once.
cudaError_t enqueue_delay(std::chrono::microseconds time, cudaStream_t stream) noexcept;

cudaError_t enqueue_nothing(cudaStream_t stream) noexcept;

}  // namespace gradvane::bench
