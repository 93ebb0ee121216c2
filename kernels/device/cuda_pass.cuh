#pragma once
// The kernel. Everything it does is in block_program.hpp.
#include "kernels/device/block_program.hpp"
#include "kernels/device/cuda_lane.cuh"
#include "kernels/device/pass_layout.hpp"

namespace gradvane::kernels::device {

/// Blocks that a multiprocessor is to hold at once: 24 warps, 96 KiB of loads in flight.
inline constexpr int kBlocksPerMultiprocessor = 3;

template <std::size_t kPointers>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    read_tensors(const __grid_constant__ Launch<kPointers> launch) {
  // As bytes: a shared object may have no initialiser, and the program writes all it reads.
  __shared__ __align__(16) unsigned char memory[sizeof(BlockMemory)];
  CudaLane lane;
  BlockProgram<CudaLane, Launch<kPointers>>(lane, launch, *reinterpret_cast<BlockMemory*>(memory))
      .run();
}

}  // namespace gradvane::kernels::device
