#pragma once
// The bit patterns between which a run takes one path or another. Constants only: see cpu_part.hpp.
#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/element.hpp"
#include "kernels/sum_scale.hpp"

namespace gradvane::kernels {

template <DType dtype>
struct RunLimits : Format<dtype> {
  using Bits = typename Format<dtype>::Bits;
  static constexpr Bits kNegInf = static_cast<Bits>(~Format<dtype>::kAbsMask | Format<dtype>::kInf);

  // Magnitudes that fp32 runs take, in the dtype's bits: of fp16, all finite ones.
  static constexpr int kShift = dtype == DType::bf16 ? 16 : 0;
  static constexpr Bits kShortMin =
      dtype == DType::f16
          ? Bits{1}
          : static_cast<Bits>(__builtin_bit_cast(std::uint32_t, static_cast<float>(kShortRunMin)) >>
                              kShift);
  static constexpr Bits kShortMax =
      dtype == DType::f16
          ? static_cast<Bits>(Format<dtype>::kInf - 1)
          : static_cast<Bits>(__builtin_bit_cast(std::uint32_t, static_cast<float>(kShortRunMax)) >>
                              kShift);

  // Of fp64.
  static constexpr std::uint64_t kUnscaledMin =
      __builtin_bit_cast(std::uint64_t, kernels::kUnscaledMin);
  static constexpr std::uint64_t kUnscaledMax =
      __builtin_bit_cast(std::uint64_t, kernels::kUnscaledMax);
};

}  // namespace gradvane::kernels
