#pragma once
// Norms and magnitudes are over finite elements. What is not finite makes them those of a part: no measure of the
// whole, and 0 where no element is finite.
#include <cstdint>
#include <numeric>

#include "record/step_record.hpp"

namespace gradvane::exporters {

[[nodiscard]] inline std::int64_t sum_of(const record::NonfiniteCounts& counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

[[nodiscard]] inline std::int64_t nonfinite_at(const record::StepRecord& record,
                                               record::Site site) noexcept {
  return sum_of(record.nonfinite[static_cast<std::size_t>(site)]);
}

/// False also of an empty one.
[[nodiscard]] inline bool has_finite(const record::TensorNumbers& numbers) noexcept {
  return sum_of(numbers.nonfinite) < numbers.numel;
}

/// False where gradients were read and no element of them was finite.
[[nodiscard]] inline bool has_finite_gradient(const record::StepRecord& record) noexcept {
  const std::int64_t bad = nonfinite_at(record, record::Site::grad);
  return bad == 0 || bad < record.grad_numel;
}

}  // namespace gradvane::exporters
