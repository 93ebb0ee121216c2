#pragma once
// What a physical block of a clip does: it multiplies the gradients that the last read has read, in place, by
// what makes their norm at most max_norm. Written over a Lane, as block_program.hpp is, which needs besides
//
//   static Vector load_to_change(const std::byte*)  as load(), of what this thread will store() to
//   static void store(std::byte*, Vector)           aligned to sixteen bytes
//
// Threads need nothing of each other: each element is one thread's, and there is no barrier.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/chunk_plan.hpp"
#include "kernels/clip_coefficient.hpp"
#include "kernels/device/group.hpp"
#include "kernels/device/narrow.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/element.hpp"

namespace gradvane::kernels::device {

/// In fp64 for fp64, else in fp32: the product is rounded once more, to the element's dtype.
template <DType dtype>
using Factor = std::conditional_t<dtype == DType::f64, double, float>;

template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline Bits<dtype> scaled(Bits<dtype> bits,
                                                             Factor<dtype> factor) noexcept {
  return narrow<dtype>(widen<dtype>(bits) * factor);
}

template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline Vector scaled(Vector vector,
                                                        Factor<dtype> factor) noexcept {
  if constexpr (dtype == DType::f64) {
    GRADVANE_UNROLL
    for (int i = 0; i < 4; i += 2) {
      const std::uint64_t bits =
          std::uint64_t{vector.word[i + 1]} << 32 | std::uint64_t{vector.word[i]};
      const std::uint64_t result = scaled<dtype>(bits, factor);
      vector.word[i] = static_cast<std::uint32_t>(result);
      vector.word[i + 1] = static_cast<std::uint32_t>(result >> 32);
    }
  } else {
    GRADVANE_UNROLL
    for (std::uint32_t& word : vector.word) {
      if constexpr (dtype == DType::f32) {
        word = scaled<dtype>(word, factor);
      } else {
        word = narrow_two<dtype>(widen<dtype>(static_cast<std::uint16_t>(word)) * factor,
                                 widen<dtype>(static_cast<std::uint16_t>(word >> 16)) * factor);
      }
    }
  }
  return vector;
}

template <class Lane, class Launch>
class ScaleProgram {
 public:
  GRADVANE_HOST_DEVICE ScaleProgram(Lane& lane, const Launch& launch) noexcept
      : lane_(lane), launch_(launch) {}

  /// With a coefficient of 1 nothing is read or written. NaN and 0 are multiplied by, as torch does.
  GRADVANE_HOST_DEVICE void run() noexcept {
    const double coefficient =
        clip_coefficient(launch_.tables.state->gradient_norm, launch_.max_norm);
    if (coefficient == 1) return;
    for (int block = launch_.block_begin + lane_.block(); block < launch_.block_end;
         block += lane_.grid())
      scale_block(block, coefficient);
  }

 private:
  /// Tiny tensors are dealt to the warps, the others are the whole block's.
  GRADVANE_HOST_DEVICE void scale_block(int block, double coefficient) noexcept {
    const ChunkPlanView& plan = launch_.tables.plan;
    const std::int64_t begin = plan.starts[block].tensor;
    const std::int64_t end = plan.starts[block + 1].tensor;
    for (std::int64_t tensor = begin < launch_.tensor_begin ? launch_.tensor_begin : begin;
         tensor <= end && tensor < launch_.tensor_end; ++tensor) {
      TensorPart part;
      if (!plan.part_of(block, tensor, part) || launch_.tables.sites[tensor] != Site::grad)
        continue;
      const void* data = launch_.data[tensor - launch_.tensor_begin];
      if (reinterpret_cast<std::uintptr_t>(data) < kAddressLimit) continue;
      // The caller of CudaPass::clip() had it as one that may be written to.
      auto* const memory = static_cast<std::byte*>(const_cast<void*>(data));
      const std::int64_t bytes = part.numel * size_in_bytes(part.dtype);
      const int thread = lane_.thread();
      if (bytes > kTinyBytes)
        scale_part<kThreads>(memory, part, thread, coefficient);
      else if (tensor % kWarps == thread / kWarp)
        scale_part<kWarp>(memory, part, thread % kWarp, coefficient);
    }
  }

  template <int kTeam>
  static GRADVANE_HOST_DEVICE void scale_part(std::byte* memory, const TensorPart& part, int thread,
                                              double coefficient) noexcept {
    switch (part.dtype) {
      case DType::f32:
        return scale_run<DType::f32, kTeam>(memory, part, thread, coefficient);
      case DType::f64:
        return scale_run<DType::f64, kTeam>(memory, part, thread, coefficient);
      case DType::f16:
        return scale_run<DType::f16, kTeam>(memory, part, thread, coefficient);
      case DType::bf16:
        return scale_run<DType::bf16, kTeam>(memory, part, thread, coefficient);
    }
  }

  template <DType dtype, int kTeam>
  static GRADVANE_HOST_DEVICE void scale_run(std::byte* memory, const TensorPart& part, int thread,
                                             double coefficient) noexcept {
    constexpr std::int64_t kSize = size_in_bytes(dtype);
    constexpr std::int64_t kPerVector = sizeof(Vector) / kSize;
    constexpr std::int64_t kStride = std::int64_t{kTeam} * sizeof(Vector);
    const auto factor = static_cast<Factor<dtype>>(coefficient);
    std::byte* const first = memory + part.begin * kSize;
    const std::int64_t count = part.end - part.begin;
    const std::int64_t before = elements_before<dtype>(first, count);
    const std::int64_t vectors = (count - before) / kPerVector;
    const std::int64_t behind = (count - before) % kPerVector;
    // Fewer than a vector holds, on either side.
    if (thread < before) scale_one<dtype>(first + thread * kSize, factor);
    if (thread < behind) scale_one<dtype>(first + (count - behind + thread) * kSize, factor);
    std::byte* mine = first + before * kSize + thread * std::int64_t{sizeof(Vector)};
    std::int64_t left = vectors > thread ? (vectors - thread + kTeam - 1) / kTeam : 0;
    GRADVANE_ROLL
    for (; left >= kGroup; left -= kGroup, mine += kGroup * kStride) {
      Vector group[kGroup];
      GRADVANE_UNROLL
      for (int i = 0; i < kGroup; ++i) group[i] = Lane::load_to_change(mine + i * kStride);
      GRADVANE_UNROLL
      for (int i = 0; i < kGroup; ++i)
        Lane::store(mine + i * kStride, scaled<dtype>(group[i], factor));
    }
    GRADVANE_ROLL
    for (; left > 0; --left, mine += kStride)
      Lane::store(mine, scaled<dtype>(Lane::load_to_change(mine), factor));
  }

  template <DType dtype>
  static GRADVANE_HOST_DEVICE void scale_one(std::byte* at, Factor<dtype> factor) noexcept {
    auto* const element = reinterpret_cast<Bits<dtype>*>(at);
    *element = scaled<dtype>(*element, factor);
  }

  Lane& lane_;
  const Launch& launch_;
};

}  // namespace gradvane::kernels::device
