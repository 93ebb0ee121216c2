#pragma once
// Which parameters to show, and in which order.
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/board/status_board.hpp"

namespace gradvane::exporters {

/// What the table of parameters can be ordered by. `worst` puts what needs a person first: not finite
/// now, not finite once, unreadable, without a gradient, all zero; then by gradient norm.
inline constexpr std::array<std::string_view, 14> kParamKeys{
    "index",       "name",         "group",     "state",           "worst",     "numel",
    "grad_norm",   "grad_abs_max", "grad_mean", "grad_zero_ratio", "nonfinite", "nonfinite_steps",
    "weight_norm", "update_ratio"};

struct ParamChoice {
  std::string_view key = "index";       ///< one of kParamKeys
  std::optional<bool> descending = {};  ///< absent: words ascend, numbers descend, index ascends
  std::string search = {};              ///< in names and aliases, ASCII case ignored; empty: all
};

/// Whether the name or an alias has `search` in it, ASCII case ignored.
[[nodiscard]] bool param_matches(const record::ParamInfo& info, std::string_view search);

/// Indices into the table's rows. Rows without the value come last whichever the order; ties keep the
/// model's order.
[[nodiscard]] std::vector<std::size_t> choose_params(const ParamTable& table,
                                                     const ParamChoice& choice);

/// NaN and infinite elements, taken together.
[[nodiscard]] std::int64_t nonfinite_of(const record::TensorNumbers& numbers) noexcept;
/// Over finite elements; absent where there are none.
[[nodiscard]] std::optional<double> mean_of(const record::TensorNumbers& numbers) noexcept;
/// Absent where there are no elements.
[[nodiscard]] std::optional<double> zero_ratio_of(const record::TensorNumbers& numbers) noexcept;

}  // namespace gradvane::exporters
