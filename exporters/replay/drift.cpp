#include "exporters/replay/drift.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "record/numbers.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::size_t kWindow = 32;    // steps before the fault that something may have moved in
constexpr std::size_t kHistory = 128;  // steps before those that say what is usual
constexpr std::size_t kLeastHistory = 8;
constexpr std::size_t kMostSeries = 80'000;  // of 40,000 groups and parameters; 50 MiB of numbers
constexpr double kScore = 6;                 // such deviations do not come about by chance
constexpr double kLeastFactor = 1.5;         // nor is less worth telling
constexpr double kLeastSpread = 0.05;   // a history that hardly varies is no reason to see ghosts
constexpr double kMadToSigma = 1.4826;  // for normally distributed values
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// Zero has no logarithm, and is further away than anything.
double log_of(double value) { return std::log(std::max(value, 1e-45)); }

/// The rows of the number table whose way is told, in the order of the series: of a step, then of each group and
/// each parameter.
template <const auto& table>
const auto& drifting() {
  using Row = std::decay_t<decltype(table[0])>;
  static const std::vector<const Row*> kRows = [] {
    std::vector<const Row*> found;
    for (const Row& row : table)
      if (row.drifts) found.push_back(&row);
    return found;
  }();
  return kRows;
}
const auto& step_numbers() { return drifting<record::kStepNumbers>(); }
const auto& tensor_numbers() { return drifting<record::kTensorNumbers>(); }

/// The numbers of one step in the order of the series; those of details come after the others.
class Row {
 public:
  explicit Row(const RecordedStep& step) {
    const record::StepRecord& r = step.record;
    for (const record::StepNumber* number : step_numbers()) {
      auto value = value_of(*number, r);
      // One more than there are: none is a number of syncs, too.
      if (value && number->unit == record::Unit::calls) *value += 1;
      put(value, !number->site || !r.has_nonfinite(*number->site));
    }
  }
  void put_detail(const record::StepDetail& detail, std::size_t groups, std::size_t params) {
    for (std::size_t i = 0; i < groups; ++i) {
      const record::GroupStats group =
          i < detail.groups.size() ? detail.groups[i] : record::GroupStats{};
      for (const record::TensorNumber* number : tensor_numbers())
        put(group.*number->group, !record::any(group.nonfinite[index_of(number->site)]));
    }
    for (std::size_t i = 0; i < params; ++i) {
      const record::ParamStats param =
          i < detail.params.size() ? detail.params[i] : record::ParamStats{};
      for (const record::TensorNumber* number : tensor_numbers()) {
        const auto& tensor = number->site == record::Site::grad ? param.grad : param.weight;
        put(value_of(*number, param), tensor && !record::any(tensor->nonfinite));
      }
    }
  }

  std::vector<double> values;

 private:
  /// Norms leave out what is not finite. What is left of a tensor is no measure of it: it would seem to have
  /// fallen, to 0 where nothing is left.
  void put(const std::optional<double>& value, bool is_whole) {
    // A negative loss has no logarithm either; its own detector looks after it.
    const bool is_known = is_whole && value && std::isfinite(*value) && *value >= 0;
    values.push_back(is_known ? *value : kNone);
  }
};

/// In a series every digit of a float is more than enough; out of its range is as far away as can be.
float narrowed(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::isnan(value) ? value : std::min(value, kMost));
}

Moved named(std::size_t series, const record::ModelInfo& model) {
  Moved moved;
  const std::size_t global = step_numbers().size();
  if (series < global) {
    moved.what = step_numbers()[series]->words;
    return moved;
  }
  const std::size_t kinds = tensor_numbers().size();
  const std::size_t index = (series - global) / kinds;
  moved.what = tensor_numbers()[(series - global) % kinds]->words;
  if (index < model.groups.size())
    moved.group = model.groups[index];
  else
    moved.param = model.params[index - model.groups.size()].name;
  return moved;
}

}  // namespace

std::optional<Spread> spread_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(values);
  const auto count = std::ssize(values);
  return Spread{median_of(values), low, high, count};
}

std::optional<Onset> onset_of(std::span<const double> values, std::size_t history) {
  std::vector<double> logs;
  for (const double value : values.first(std::min(history, values.size())))
    if (!std::isnan(value)) logs.push_back(log_of(value));
  if (logs.size() < kLeastHistory) return std::nullopt;
  const double usual = median_of(logs);
  for (double& value : logs) value = std::abs(value - usual);
  const double spread = std::max(kMadToSigma * median_of(logs), kLeastSpread);

  std::optional<Onset> onset;
  for (std::size_t i = values.size(); i-- > history;) {
    if (std::isnan(values[i])) continue;
    const double away = std::abs(log_of(values[i]) - usual);
    if (away < kScore * spread || away < std::log(kLeastFactor)) {
      if (i + 1 == values.size()) continue;  // the bad step itself need not be part of it
      break;
    }
    onset = Onset{i, std::exp(usual), away / spread};
  }
  return onset;
}

std::vector<Moved> moved_before(const Recording& recording, std::size_t fault, std::size_t most) {
  const auto& steps = recording.steps;
  if (fault >= steps.size()) return {};
  const std::size_t window = std::min(kWindow, fault / 2);
  const std::size_t begin = fault - std::min(fault, window + kHistory);
  const std::size_t history = fault - window - begin;
  const record::ModelInfo& model = *steps[fault].model;
  const std::size_t series = std::min(
      kMostSeries, step_numbers().size() +
                       tensor_numbers().size() * (model.groups.size() + model.params.size()));
  const std::size_t count = fault - begin + 1;

  // Series by series, so that each is looked at in one go.
  std::vector<float> table(series * count, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < count; ++i) {
    const RecordedStep& step = steps[begin + i];
    Row row(step);
    if (step.model == steps[fault].model && !model.params.empty())
      row.put_detail(recording.detail(step), model.groups.size(), model.params.size());
    for (std::size_t s = 0; s < std::min(series, row.values.size()); ++s)
      table[s * count + i] = narrowed(row.values[s]);
  }
  std::vector<Moved> all;
  for (std::size_t s = 0; s < series; ++s) {
    const auto row = std::span(table).subspan(s * count, count);
    const std::vector<double> values(row.begin(), row.end());
    const auto onset = onset_of(values, history);
    if (!onset) continue;
    Moved moved = named(s, model);
    moved.run_step = steps[begin + onset->index].record.run_step;
    moved.value = values[onset->index];
    moved.usual = onset->usual;
    moved.score = onset->score;
    if (s < step_numbers().size() &&
        step_numbers()[s]->unit == record::Unit::calls) {  // how many there are
      moved.value -= 1;
      moved.usual -= 1;
    }
    all.push_back(std::move(moved));
  }
  std::ranges::stable_sort(all, [](const Moved& a, const Moved& b) {
    return a.run_step != b.run_step ? a.run_step < b.run_step : a.score > b.score;
  });
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace gradvane::exporters::recording
