#pragma once
// Which parameters to show, and in which order.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/board/status_board.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

/// What the table of parameters can be ordered by: words and counts, then each number of a tensor. `worst` puts
/// what needs a person first: not finite now, not finite once, unreadable, without a gradient, all zero; then by
/// gradient norm.
inline constexpr auto kParamKeys = [] {
  constexpr std::array<std::string_view, 9> kWords{"index",     "name",      "group",
                                                   "state",     "worst",     "numel",
                                                   "grad_mean", "nonfinite", "nonfinite_steps"};
  std::array<std::string_view, kWords.size() + record::kTensorNumbers.size()> keys{};
  std::ranges::copy(kWords, keys.begin());
  std::ranges::transform(record::kTensorNumbers, keys.begin() + kWords.size(),
                         &record::TensorNumber::key);
  return keys;
}();

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

/// A parameter's number as it was last measured.
[[nodiscard]] std::optional<double> value_of(const record::TensorNumber& number,
                                             const ParamRow& row) noexcept;

}  // namespace gradvane::exporters
