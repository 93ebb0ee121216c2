#include "collectors/sync_ledger/cuda_calls.hpp"

namespace gradvane::collectors {
namespace {

using enum CallClass;
constexpr auto kR = cupti::Domain::runtime;
constexpr auto kD = cupti::Domain::driver;
constexpr auto kToDevice = CopyDirection::host_to_device;
constexpr auto kToHost = CopyDirection::device_to_host;
constexpr auto kOnDevice = CopyDirection::device_to_device;

// Ids are never given twice and never change. Left out: what waits on the device only (cudaStreamWaitEvent),
// what the documentation says returns at once (destroying streams and events, stream-ordered allocation),
// and launches, the most frequent calls of all, which wait only where their queue is full.
constexpr CudaCall kCalls[] = {
    // clang-format off
    {kR, 20, "cudaMalloc_v3020", allocation},
    {kR, 21, "cudaMallocPitch_v3020", allocation},
    {kR, 22, "cudaFree_v3020", allocation},
    {kR, 23, "cudaMallocArray_v3020", allocation},
    {kR, 24, "cudaFreeArray_v3020", allocation},
    {kR, 25, "cudaMallocHost_v3020", allocation},
    {kR, 26, "cudaFreeHost_v3020", allocation},
    {kR, 27, "cudaHostAlloc_v3020", allocation},
    {kR, 31, "cudaMemcpy_v3020", copy, 255, 24},
    {kR, 32, "cudaMemcpy2D_v3020", copy, 255, 48},
    {kR, 33, "cudaMemcpyToArray_v3020", copy, 255, 40},
    {kR, 34, "cudaMemcpy2DToArray_v3020", copy, 255, 56},
    {kR, 35, "cudaMemcpyFromArray_v3020", copy},
    {kR, 36, "cudaMemcpy2DFromArray_v3020", copy},
    {kR, 37, "cudaMemcpyArrayToArray_v3020", copy},
    {kR, 38, "cudaMemcpy2DArrayToArray_v3020", copy},
    {kR, 39, "cudaMemcpyToSymbol_v3020", copy, 255, 32},
    {kR, 40, "cudaMemcpyFromSymbol_v3020", copy, 255, 32},
    {kR, 41, "cudaMemcpyAsync_v3020", copy_async, 32, 24},
    {kR, 42, "cudaMemcpyToArrayAsync_v3020", copy_async, 48, 40},
    {kR, 43, "cudaMemcpyFromArrayAsync_v3020", copy_async, 48, 40},
    {kR, 44, "cudaMemcpy2DAsync_v3020", copy_async, 56, 48},
    {kR, 45, "cudaMemcpy2DToArrayAsync_v3020", copy_async, 64, 56},
    {kR, 46, "cudaMemcpy2DFromArrayAsync_v3020", copy_async, 64, 56},
    {kR, 47, "cudaMemcpyToSymbolAsync_v3020", copy_async, 40, 32},
    {kR, 48, "cudaMemcpyFromSymbolAsync_v3020", copy_async, 40, 32},
    {kR, 123, "cudaThreadExit_v3020", device},
    {kR, 126, "cudaThreadSynchronize_v3020", device},
    {kR, 131, "cudaStreamSynchronize_v3020", stream, 0},
    {kR, 132, "cudaStreamQuery_v3020", poll},
    {kR, 137, "cudaEventSynchronize_v3020", event},
    {kR, 138, "cudaEventQuery_v3020", poll},
    {kR, 140, "cudaMalloc3D_v3020", allocation},
    {kR, 141, "cudaMalloc3DArray_v3020", allocation},
    {kR, 144, "cudaMemcpy3D_v3020", copy},
    {kR, 145, "cudaMemcpy3DAsync_v3020", copy_async, 8},
    {kR, 152, "cudaHostRegister_v4000", allocation},
    {kR, 153, "cudaHostUnregister_v4000", allocation},
    {kR, 160, "cudaMemcpyPeer_v4000", copy, 255, 255, kOnDevice},
    {kR, 161, "cudaMemcpyPeerAsync_v4000", copy_async, 40, 255, kOnDevice},
    {kR, 162, "cudaMemcpy3DPeer_v4000", copy, 255, 255, kOnDevice},
    {kR, 163, "cudaMemcpy3DPeerAsync_v4000", copy_async, 8, 255, kOnDevice},
    {kR, 164, "cudaDeviceReset_v3020", device},
    {kR, 165, "cudaDeviceSynchronize_v3020", device},
    {kR, 192, "cudaMallocMipmappedArray_v5000", allocation},
    {kR, 194, "cudaFreeMipmappedArray_v5000", allocation},
    {kR, 206, "cudaMallocManaged_v6000", allocation},
    {kR, 215, "cudaMemcpy_ptds_v7000", copy, 255, 24},
    {kR, 216, "cudaMemcpy2D_ptds_v7000", copy, 255, 48},
    {kR, 217, "cudaMemcpyToArray_ptds_v7000", copy, 255, 40},
    {kR, 218, "cudaMemcpy2DToArray_ptds_v7000", copy, 255, 56},
    {kR, 219, "cudaMemcpyFromArray_ptds_v7000", copy},
    {kR, 220, "cudaMemcpy2DFromArray_ptds_v7000", copy},
    {kR, 221, "cudaMemcpyArrayToArray_ptds_v7000", copy},
    {kR, 222, "cudaMemcpy2DArrayToArray_ptds_v7000", copy},
    {kR, 223, "cudaMemcpyToSymbol_ptds_v7000", copy, 255, 32},
    {kR, 224, "cudaMemcpyFromSymbol_ptds_v7000", copy, 255, 32},
    {kR, 225, "cudaMemcpyAsync_ptsz_v7000", copy_async, 32, 24},
    {kR, 226, "cudaMemcpyToArrayAsync_ptsz_v7000", copy_async, 48, 40},
    {kR, 227, "cudaMemcpyFromArrayAsync_ptsz_v7000", copy_async, 48, 40},
    {kR, 228, "cudaMemcpy2DAsync_ptsz_v7000", copy_async, 56, 48},
    {kR, 229, "cudaMemcpy2DToArrayAsync_ptsz_v7000", copy_async, 64, 56},
    {kR, 230, "cudaMemcpy2DFromArrayAsync_ptsz_v7000", copy_async, 64, 56},
    {kR, 231, "cudaMemcpyToSymbolAsync_ptsz_v7000", copy_async, 40, 32},
    {kR, 232, "cudaMemcpyFromSymbolAsync_ptsz_v7000", copy_async, 40, 32},
    {kR, 239, "cudaStreamSynchronize_ptsz_v7000", stream, 0},
    {kR, 240, "cudaStreamQuery_ptsz_v7000", poll},
    {kR, 245, "cudaMemcpy3D_ptds_v7000", copy},
    {kR, 246, "cudaMemcpy3DAsync_ptsz_v7000", copy_async, 8},
    {kR, 249, "cudaMemcpy3DPeer_ptds_v7000", copy, 255, 255, kOnDevice},
    {kR, 250, "cudaMemcpy3DPeerAsync_ptsz_v7000", copy_async, 8, 255, kOnDevice},
    {kR, 313, "cudaGraphExecDestroy_v10000", allocation},
    {kR, 377, "cudaMemPoolTrimTo_v11020", allocation},
    {kR, 470, "cudaLibraryLoadData_v12060", module},
    {kR, 471, "cudaLibraryLoadFromFile_v12060", module},
    {kR, 472, "cudaLibraryUnload_v12060", module},
    {kR, 482, "cudaMemcpyBatchAsync_v12080", copy_async, 64},
    {kR, 483, "cudaMemcpyBatchAsync_ptsz_v12080", copy_async, 64},
    {kR, 484, "cudaMemcpy3DBatchAsync_v12080", copy_async, 32},
    {kR, 485, "cudaMemcpy3DBatchAsync_ptsz_v12080", copy_async, 32},
    {kR, 509, "cudaMemcpyBatchAsync_v13000", copy_async, 56},
    {kR, 510, "cudaMemcpyBatchAsync_ptsz_v13000", copy_async, 56},
    {kR, 511, "cudaMemcpy3DBatchAsync_v13000", copy_async, 24},
    {kR, 512, "cudaMemcpy3DBatchAsync_ptsz_v13000", copy_async, 24},
    {kD, 17, "cuCtxSynchronize", device},
    {kD, 18, "cuModuleLoad", module},
    {kD, 19, "cuModuleLoadData", module},
    {kD, 20, "cuModuleLoadDataEx", module},
    {kD, 21, "cuModuleLoadFatBinary", module},
    {kD, 22, "cuModuleUnload", module},
    {kD, 38, "cuMemFreeHost", allocation},
    {kD, 120, "cuEventQuery", poll},
    {kD, 121, "cuEventSynchronize", event},
    {kD, 125, "cuStreamQuery", poll},
    {kD, 126, "cuStreamSynchronize", stream, 0},
    {kD, 243, "cuMemAlloc_v2", allocation},
    {kD, 244, "cuMemAllocPitch_v2", allocation},
    {kD, 245, "cuMemFree_v2", allocation},
    {kD, 271, "cuMemHostAlloc_v2", allocation},
    {kD, 276, "cuMemcpyHtoD_v2", copy, 255, 255, kToDevice},
    {kD, 277, "cuMemcpyHtoDAsync_v2", copy_async, 24, 255, kToDevice},
    {kD, 278, "cuMemcpyDtoH_v2", copy, 255, 255, kToHost},
    {kD, 279, "cuMemcpyDtoHAsync_v2", copy_async, 24, 255, kToHost},
    {kD, 280, "cuMemcpyDtoD_v2", copy, 255, 255, kOnDevice},
    {kD, 281, "cuMemcpyDtoDAsync_v2", copy_async, 24, 255, kOnDevice},
    {kD, 282, "cuMemcpyAtoH_v2", copy, 255, 255, kToHost},
    {kD, 283, "cuMemcpyAtoHAsync_v2", copy_async, 32, 255, kToHost},
    {kD, 284, "cuMemcpyAtoD_v2", copy, 255, 255, kOnDevice},
    {kD, 285, "cuMemcpyDtoA_v2", copy, 255, 255, kOnDevice},
    {kD, 286, "cuMemcpyAtoA_v2", copy, 255, 255, kOnDevice},
    {kD, 287, "cuMemcpy2D_v2", copy},
    {kD, 288, "cuMemcpy2DUnaligned_v2", copy},
    {kD, 289, "cuMemcpy2DAsync_v2", copy_async, 8},
    {kD, 290, "cuMemcpy3D_v2", copy},
    {kD, 291, "cuMemcpy3DAsync_v2", copy_async, 8},
    {kD, 292, "cuMemcpyHtoA_v2", copy, 255, 255, kToDevice},
    {kD, 293, "cuMemcpyHtoAAsync_v2", copy_async, 32, 255, kToDevice},
    {kD, 294, "cuMemAllocHost_v2", allocation},
    {kD, 302, "cuMemHostUnregister", allocation},
    {kD, 305, "cuMemcpy", copy},
    {kD, 306, "cuMemcpyAsync", copy_async, 24},
    {kD, 318, "cuMemcpyPeer", copy, 255, 255, kOnDevice},
    {kD, 319, "cuMemcpyPeerAsync", copy_async, 40, 255, kOnDevice},
    {kD, 320, "cuMemcpy3DPeer", copy, 255, 255, kOnDevice},
    {kD, 321, "cuMemcpy3DPeerAsync", copy_async, 8, 255, kOnDevice},
    {kD, 322, "cuCtxDestroy_v2", device},
    {kD, 371, "cuMemAllocManaged", allocation},
    {kD, 379, "cuMemHostRegister_v2", allocation},
    {kD, 397, "cuMemcpyHtoD_v2_ptds", copy, 255, 255, kToDevice},
    {kD, 398, "cuMemcpyDtoH_v2_ptds", copy, 255, 255, kToHost},
    {kD, 399, "cuMemcpyDtoD_v2_ptds", copy, 255, 255, kOnDevice},
    {kD, 400, "cuMemcpyDtoA_v2_ptds", copy, 255, 255, kOnDevice},
    {kD, 401, "cuMemcpyAtoD_v2_ptds", copy, 255, 255, kOnDevice},
    {kD, 402, "cuMemcpyHtoA_v2_ptds", copy, 255, 255, kToDevice},
    {kD, 403, "cuMemcpyAtoH_v2_ptds", copy, 255, 255, kToHost},
    {kD, 404, "cuMemcpyAtoA_v2_ptds", copy, 255, 255, kOnDevice},
    {kD, 405, "cuMemcpy2D_v2_ptds", copy},
    {kD, 406, "cuMemcpy2DUnaligned_v2_ptds", copy},
    {kD, 407, "cuMemcpy3D_v2_ptds", copy},
    {kD, 408, "cuMemcpy_ptds", copy},
    {kD, 409, "cuMemcpyPeer_ptds", copy, 255, 255, kOnDevice},
    {kD, 410, "cuMemcpy3DPeer_ptds", copy, 255, 255, kOnDevice},
    {kD, 418, "cuMemcpyAsync_ptsz", copy_async, 24},
    {kD, 419, "cuMemcpyHtoAAsync_v2_ptsz", copy_async, 32, 255, kToDevice},
    {kD, 420, "cuMemcpyAtoHAsync_v2_ptsz", copy_async, 32, 255, kToHost},
    {kD, 421, "cuMemcpyHtoDAsync_v2_ptsz", copy_async, 24, 255, kToDevice},
    {kD, 422, "cuMemcpyDtoHAsync_v2_ptsz", copy_async, 24, 255, kToHost},
    {kD, 423, "cuMemcpyDtoDAsync_v2_ptsz", copy_async, 24, 255, kOnDevice},
    {kD, 424, "cuMemcpy2DAsync_v2_ptsz", copy_async, 8},
    {kD, 425, "cuMemcpy3DAsync_v2_ptsz", copy_async, 8},
    {kD, 426, "cuMemcpyPeerAsync_ptsz", copy_async, 40, 255, kOnDevice},
    {kD, 427, "cuMemcpy3DPeerAsync_ptsz", copy_async, 8, 255, kOnDevice},
    {kD, 439, "cuStreamQuery_ptsz", poll},
    {kD, 440, "cuStreamSynchronize_ptsz", stream, 0},
    {kD, 516, "cuGraphExecDestroy", allocation},
    {kD, 549, "cuMemCreate", allocation},
    {kD, 550, "cuMemRelease", allocation},
    {kD, 544, "cuDevicePrimaryCtxRelease_v2", allocation},
    {kD, 551, "cuMemMap", allocation},
    {kD, 552, "cuMemUnmap", allocation},
    {kD, 553, "cuMemSetAccess", allocation},
    {kD, 602, "cuMemPoolTrimTo", allocation},
    {kD, 678, "cuLibraryLoadData", module},
    {kD, 679, "cuLibraryLoadFromFile", module},
    {kD, 680, "cuLibraryUnload", module},
    {kD, 776, "cuMemcpyBatchAsync", copy_async, 64},
    {kD, 777, "cuMemcpyBatchAsync_ptsz", copy_async, 64},
    {kD, 778, "cuMemcpy3DBatchAsync", copy_async, 32},
    {kD, 779, "cuMemcpy3DBatchAsync_ptsz", copy_async, 32},
    {kD, 796, "cuMemcpyBatchAsync_v2", copy_async, 56},
    {kD, 797, "cuMemcpyBatchAsync_v2_ptsz", copy_async, 56},
    {kD, 798, "cuMemcpy3DBatchAsync_v2", copy_async, 24},
    {kD, 799, "cuMemcpy3DBatchAsync_v2_ptsz", copy_async, 24},
    {kD, 800, "cuCtxSynchronize_v2", device},
    // clang-format on
};

/// Position in kCalls plus one, by id; 0: not looked at.
struct Index {
  std::array<std::uint8_t, 1024> runtime{};
  std::array<std::uint8_t, 1024> driver{};
};
static_assert(std::size(kCalls) < 255);

constexpr Index make_index() {
  Index index;
  for (std::size_t i = 0; i < std::size(kCalls); ++i) {
    const CudaCall& call = kCalls[i];
    (call.domain == kR ? index.runtime : index.driver)[call.id] = static_cast<std::uint8_t>(i + 1);
  }
  return index;
}
constexpr Index kIndex = make_index();

}  // namespace

std::span<const CudaCall> cuda_calls() noexcept { return kCalls; }

const CudaCall* cuda_call(cupti::Domain domain, std::uint32_t id) noexcept {
  if (id >= kIndex.runtime.size()) return nullptr;
  const std::uint8_t at = domain == kR   ? kIndex.runtime[id]
                          : domain == kD ? kIndex.driver[id]
                                         : std::uint8_t{0};
  return at == 0 ? nullptr : &kCalls[at - 1];
}

}  // namespace gradvane::collectors
