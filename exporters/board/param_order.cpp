#include "exporters/board/param_order.hpp"

#include <algorithm>
#include <numeric>

#include "exporters/finite_part.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

using record::ParamState;
using record::TensorNumbers;

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool contains(std::string_view text, std::string_view part) {
  return std::ranges::search(text, part, {}, lower, lower).begin() != text.end() || part.empty();
}

int badness(const ParamRow& row) {
  if (row.state == ParamState::nonfinite) return 5;
  if (row.first_bad) return 4;
  switch (row.state) {
    case ParamState::unsupported:
      return 3;
    case ParamState::missing:
      return 2;
    case ParamState::zero:
      return 1;
    default:
      return 0;
  }
}

std::optional<double> number_of(const ParamRow& row, const record::ParamInfo& info,
                                std::string_view key) {
  if (key == "numel") return static_cast<double>(info.numel);
  if (key == "nonfinite_steps") return static_cast<double>(row.nonfinite_steps);
  if (key == "worst") return badness(row);
  if (key == "weight_norm") {
    return row.weight && has_finite(row.weight->value) ? std::optional(row.weight->value.norm)
                                                       : std::nullopt;
  }
  if (key == "update_ratio") {
    return row.update_ratio ? std::optional(row.update_ratio->value) : std::nullopt;
  }
  if (!row.grad) return std::nullopt;
  const TensorNumbers& grad = row.grad->value;
  const bool is_size = key == "grad_norm" || key == "grad_abs_max";
  if (is_size && !has_finite(grad)) return std::nullopt;
  if (is_size) return key == "grad_norm" ? grad.norm : grad.abs_max;
  if (key == "grad_mean") return mean_of(grad);
  if (key == "grad_zero_ratio") return zero_ratio_of(grad);
  return static_cast<double>(nonfinite_of(grad));
}

void sort_by_text(std::vector<std::size_t>& rows, const ParamTable& table, std::string_view key,
                  bool descending) {
  const auto text = [&](std::size_t i) -> std::string_view {
    const record::ParamInfo& info = table.model->params[i];
    if (key == "state") return name_of(table.rows[i].state);
    if (key == "name") return info.name;
    const auto group = static_cast<std::size_t>(info.group);
    return group < table.model->groups.size() ? std::string_view(table.model->groups[group]) : "";
  };
  std::ranges::stable_sort(rows, [&](std::size_t a, std::size_t b) {
    return descending ? text(b) < text(a) : text(a) < text(b);
  });
}

void sort_by_number(std::vector<std::size_t>& rows, const ParamTable& table, std::string_view key,
                    bool descending) {
  std::vector<std::optional<double>> numbers(table.rows.size());
  for (const std::size_t i : rows) {
    numbers[i] = number_of(table.rows[i], table.model->params[i], key);
  }
  std::ranges::stable_sort(rows, [&](std::size_t a, std::size_t b) {
    if (!numbers[a] || !numbers[b]) return numbers[a].has_value() && !numbers[b].has_value();
    return descending ? *numbers[a] > *numbers[b] : *numbers[a] < *numbers[b];
  });
}

}  // namespace

bool param_matches(const record::ParamInfo& info, std::string_view search) {
  return contains(info.name, search) || std::ranges::any_of(info.aliases, [&](const auto& name) {
           return contains(name, search);
         });
}

std::vector<std::size_t> choose_params(const ParamTable& table, const ParamChoice& choice) {
  std::vector<std::size_t> rows;
  const std::size_t count = std::min(table.rows.size(), table.model->params.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (param_matches(table.model->params[i], choice.search)) rows.push_back(i);
  }
  const std::string_view key = choice.key;
  if (key == "index") {
    if (choice.descending.value_or(false)) std::ranges::reverse(rows);
  } else if (key == "name" || key == "group" || key == "state") {
    sort_by_text(rows, table, key, choice.descending.value_or(false));
  } else {
    const bool descending = choice.descending.value_or(true);
    if (key == "worst") sort_by_number(rows, table, "grad_norm", descending);
    sort_by_number(rows, table, key, descending);
  }
  return rows;
}

std::int64_t nonfinite_of(const TensorNumbers& numbers) noexcept {
  return std::accumulate(numbers.nonfinite.begin(), numbers.nonfinite.end(), std::int64_t{0});
}

std::optional<double> mean_of(const TensorNumbers& numbers) noexcept {
  const std::int64_t finite = numbers.numel - nonfinite_of(numbers);
  if (finite <= 0) return std::nullopt;
  return numbers.sum / static_cast<double>(finite);
}

std::optional<double> zero_ratio_of(const TensorNumbers& numbers) noexcept {
  if (numbers.numel <= 0) return std::nullopt;
  return static_cast<double>(numbers.zero) / static_cast<double>(numbers.numel);
}

}  // namespace gradvane::exporters
