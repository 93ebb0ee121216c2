#pragma once
// What a pass says of a tensor with one element.
#include <cmath>

#include "kernels/tensor_stats.hpp"

namespace gradvane::collectors::test {

inline kernels::TensorStats number(double value) {
  kernels::TensorStats stats;
  stats.numel = 1;
  stats.sum = value;
  stats.sum_sq = value * value;
  stats.abs_max = stats.abs_min_nonzero = std::abs(value);
  return stats;
}

}  // namespace gradvane::collectors::test
