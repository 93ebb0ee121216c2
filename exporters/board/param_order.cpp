#include "exporters/board/param_order.hpp"

#include <algorithm>

#include "record/names.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

using record::ParamState;

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

std::optional<double> nonfinite_of(const ParamRow& row) {
  if (!row.grad) return std::nullopt;
  return static_cast<double>(record::sum_of(row.grad->value.nonfinite));
}

std::optional<double> number_of(const ParamRow& row, const record::ParamInfo& info,
                                std::string_view key) {
  if (key == "numel") return static_cast<double>(info.numel);
  if (key == "nonfinite_steps") return static_cast<double>(row.nonfinite_steps);
  if (key == "worst") return badness(row);
  if (key == "grad_mean") return row.grad ? record::mean_of(row.grad->value) : std::nullopt;
  if (key == "nonfinite") return nonfinite_of(row);
  const auto number = std::ranges::find(record::kTensorNumbers, key, &record::TensorNumber::key);
  return number == record::kTensorNumbers.end() ? std::nullopt : value_of(*number, row);
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

std::optional<double> value_of(const record::TensorNumber& number, const ParamRow& row) noexcept {
  if (number.join == record::Join::update)
    return row.update_ratio ? std::optional(row.update_ratio->value) : std::nullopt;
  const auto& tensor = number.site == record::Site::grad ? row.grad : row.weight;
  return tensor ? record::value_of(number, tensor->value) : std::nullopt;
}

}  // namespace gradvane::exporters
