#pragma once
// The yardstick of the CPU pass: an L2 norm and nothing else, as fast as one core can do it.
#include <cstdint>

#include "kernels/cpu_pass.hpp"
#include "kernels/dtype.hpp"

namespace gradvane::bench {

/// Sum of squares in fp32 (fp64 of fp64), eight accumulators, unaligned loads; no care for overflow,
/// NaN, zeros or the tail behind the last 256 bytes.
/// @param path  avx2 or avx512, which this processor must have
double plain_sum_of_squares(const void* data, std::int64_t bytes, kernels::DType dtype,
                            kernels::CpuPath path) noexcept;

}  // namespace gradvane::bench
