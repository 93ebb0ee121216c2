#pragma once
// The numbers of a step that are drawn over time.
#include <array>
#include <optional>
#include <string_view>

#include "record/step_record.hpp"

namespace gradvane::exporters {

struct StepSeries {
  std::string_view name;  ///< in /api/v1/history
  std::optional<double> (*of)(const record::StepRecord&);
};

inline constexpr std::size_t kStepSeries = 17;
[[nodiscard]] const std::array<StepSeries, kStepSeries>& step_series() noexcept;

/// The number if it was measured and is finite. That something was not finite is counted, not drawn.
[[nodiscard]] std::optional<double> finite(std::optional<double> value) noexcept;

}  // namespace gradvane::exporters
