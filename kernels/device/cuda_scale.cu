#include "kernels/device/cuda_lane.cuh"
#include "kernels/device/cuda_scale.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/device/scale_program.hpp"

namespace gradvane::kernels::device {
namespace {

/// Blocks that a multiprocessor is to hold at once: 24 warps, 96 KiB of loads in flight.
constexpr int kBlocksPerMultiprocessor = 3;

template <std::size_t kPointers>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    scale_tensors(const __grid_constant__ Launch<kPointers> launch) {
  CudaLane lane;
  ScaleProgram<CudaLane, Launch<kPointers>>(lane, launch).run();
}

}  // namespace

const void* scale_kernel(bool few) noexcept {
  return few ? reinterpret_cast<const void*>(&scale_tensors<kFewPointers>)
             : reinterpret_cast<const void*>(&scale_tensors<kManyPointers>);
}

}  // namespace gradvane::kernels::device
