#pragma once
// A thread of a CUDA block, as block_program.hpp wants it.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/group.hpp"
#include "kernels/device/packed.hpp"

namespace gradvane::kernels::device {

class CudaLane {
 public:
  /// Asked for again each time: what the compiler makes of it once it would keep in registers for the whole
  /// kernel, and the loops need all there are.
  __device__ static int thread() noexcept {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
  }
  __device__ static int block() noexcept { return static_cast<int>(blockIdx.x); }
  __device__ static int grid() noexcept { return static_cast<int>(gridDim.x); }

  __device__ static void sync() noexcept { __syncthreads(); }
  __device__ static void sync_warp() noexcept { __syncwarp(); }

  __device__ static std::uint32_t ballot(bool value) noexcept {
    return __ballot_sync(kAllLanes, value);
  }
  __device__ static bool any(bool value) noexcept { return __any_sync(kAllLanes, value) != 0; }
  template <class T>
  __device__ static T shuffle_down(T value, int distance) noexcept {
    return __shfl_down_sync(kAllLanes, value, static_cast<unsigned>(distance));
  }

  __device__ static void add(std::int64_t* to, std::int64_t value) noexcept {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
  }
  __device__ static void raise(std::uint64_t* to, std::uint64_t value) noexcept {
    atomicMax(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
  }

  // What the barrier before it made this thread see is part of the release, and the acquire is its whole
  // block's after the next barrier: causality order is transitive (PTX ISA, memory consistency model).
  __device__ static std::uint32_t arrive(std::uint32_t* counter) noexcept {
    std::uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    return before;
  }

  /// Sixteen bytes that nobody writes while the kernel runs. Not kept in L1: nobody here reads them again.
  __device__ static Vector load(const std::byte* at) noexcept {
    Vector v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(__cvta_generic_to_global(at)));
    return v;
  }

  /// Brings to the L2 cache what the threads of this warp will load: kGroup vectors each, `stride` bytes apart, of which
  /// `at` is this thread's first. One line each, for a prefetch takes its time for each thread.
  __device__ static void prefetch_group(const std::byte* at, int stride) noexcept {
    const int lane = thread() % 32;
    at += line_of_group(lane, stride) - lane * static_cast<int>(sizeof(Vector));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(at)));
  }

  /// As load, of what this thread will store to.
  __device__ static Vector load_to_change(const std::byte* at) noexcept {
    Vector v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(__cvta_generic_to_global(at)));
    return v;
  }
  __device__ static void store(std::byte* at, const Vector& v) noexcept {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)),
                 "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
  }

  __device__ static void store_host(std::uint64_t* to, std::uint64_t value) noexcept {
    *static_cast<volatile std::uint64_t*>(to) = value;
  }
  __device__ static void fence_host() noexcept { __threadfence_system(); }

 private:
  static constexpr unsigned kAllLanes = 0xffffffff;
};

}  // namespace gradvane::kernels::device
