#pragma once
// Numbers of tensors: what is said of a gradient or a weight, of a parameter and of a group. One half of the number
// table; numbers.hpp says what it is for.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>

#include "record/hypot.hpp"
#include "record/metric_catalogue.hpp"
#include "record/step_record.hpp"

namespace gradvane::record {

// ---- what a tensor's numbers say ----------------------------------------------------------------------
// Norms and magnitudes are over finite elements. If an element is not finite they are those of a part and no
// measure of the whole; if none is finite there is no such number.

[[nodiscard]] inline std::int64_t sum_of(const NonfiniteCounts& counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

[[nodiscard]] inline std::int64_t nonfinite_at(const StepRecord& record, Site site) noexcept {
  return sum_of(record.nonfinite[index_of(site)]);
}

/// False for an empty tensor too.
[[nodiscard]] inline bool has_finite(const TensorNumbers& numbers) noexcept {
  return sum_of(numbers.nonfinite) < numbers.numel;
}

/// False if gradients were read and none of their elements was finite.
[[nodiscard]] inline bool has_finite_gradient(const StepRecord& record) noexcept {
  const std::int64_t bad = nonfinite_at(record, Site::grad);
  return bad == 0 || bad < record.grad_numel;
}

/// `count` of `numel`; absent if there are no elements.
[[nodiscard]] inline std::optional<double> share_of(std::int64_t count,
                                                    std::int64_t numel) noexcept {
  if (numel <= 0) return std::nullopt;
  return static_cast<double>(count) / static_cast<double>(numel);
}

// ---- numbers of tensors: of a parameter, and of a group ------------------------------------------------

enum class Unit : std::uint8_t { plain, share, ratio, seconds, bytes, per_second, calls };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<Unit> = std::to_array<std::string_view>(
    {"plain", "share", "ratio", "seconds", "bytes", "per_second", "calls"});

/// How a group's number follows from those of its parameters.
enum class Join : std::uint8_t {
  norm,   ///< root of the sum of squares
  max,    ///< the largest
  min,    ///< the smallest
  mean,   ///< over all finite elements
  share,  ///< elements that count, of all elements
  update  ///< the step builder's own rule: it is a ratio of two norms over a sample
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<Join> =
    std::to_array<std::string_view>({"norm", "max", "min", "mean", "share", "update"});

struct TensorNumber {
  std::string_view key;  ///< in the API, the history and the address of the page
  /// In the API beside the other numbers of its tensor; a weight has there what a gradient has. Empty: it stands
  /// by itself.
  std::string_view tensor_key = {};
  std::string_view title;  ///< a heading: "Gradient norm"
  std::string_view label;  ///< a column: "grad norm"
  std::string_view words;  ///< in a sentence: "gradient norm"
  Site site;               ///< which tensor of the parameter it is of
  Join join;
  Unit unit = Unit::plain;
  double TensorNumbers::* value = nullptr;        ///< for joins norm, max, min and mean
  std::int64_t TensorNumbers::* count = nullptr;  ///< for join share
  std::optional<double> GroupStats::* group;
  /// The step's own, if it is joined like a group's: such a number is a row of kStepNumbers too. Others have a
  /// rule of their own in the step builder, and a row of their own there.
  std::optional<double> StepRecord::* step = nullptr;
  Metric metric;                           ///< of a group
  std::optional<Metric> step_metric = {};  ///< if `step` is set
  std::uint32_t recording_id;  ///< of a group's column in a recording: for good, never used again
  std::uint32_t step_recording_id = 0;  ///< of the step's field, if `step` is set
  bool is_compared = true;              ///< by diff
  bool drifts = false;                  ///< its course before a fault is reported
};

inline constexpr std::array kTensorNumbers{
    TensorNumber{.key = "grad_norm",
                 .tensor_key = "norm",
                 .title = "Gradient norm",
                 .label = "grad norm",
                 .words = "gradient norm",
                 .site = Site::grad,
                 .join = Join::norm,
                 .value = &TensorNumbers::norm,
                 .group = &GroupStats::grad_norm,
                 .metric = Metric::group_grad_norm,
                 .recording_id = 2,
                 .drifts = true},
    TensorNumber{.key = "grad_abs_max",
                 .tensor_key = "abs_max",
                 .title = "Largest gradient",
                 .label = "grad max",
                 .words = "largest gradient",
                 .site = Site::grad,
                 .join = Join::max,
                 .value = &TensorNumbers::abs_max,
                 .group = &GroupStats::grad_abs_max,
                 .step = &StepRecord::grad_abs_max,
                 .metric = Metric::group_grad_abs_max,
                 .step_metric = Metric::grad_abs_max,
                 .recording_id = 3,
                 .step_recording_id = 20,
                 .drifts = true},
    TensorNumber{.key = "grad_abs_min_nonzero",
                 .tensor_key = "abs_min_nonzero",
                 .title = "Smallest nonzero gradient",
                 .label = "grad min",
                 .words = "smallest nonzero gradient",
                 .site = Site::grad,
                 .join = Join::min,
                 .value = &TensorNumbers::abs_min_nonzero,
                 .group = &GroupStats::grad_abs_min_nonzero,
                 .step = &StepRecord::grad_abs_min_nonzero,
                 .metric = Metric::group_grad_abs_min_nonzero,
                 .step_metric = Metric::grad_abs_min_nonzero,
                 .recording_id = 7,
                 .step_recording_id = 48,
                 .is_compared = false},  // one element decides it: like runs differ by decades
    TensorNumber{.key = "grad_abs_mean",
                 .tensor_key = "abs_mean",
                 .title = "Mean gradient magnitude",
                 .label = "grad mean",
                 .words = "mean gradient magnitude",
                 .site = Site::grad,
                 .join = Join::mean,
                 .value = &TensorNumbers::abs_mean,
                 .group = &GroupStats::grad_abs_mean,
                 .step = &StepRecord::grad_abs_mean,
                 .metric = Metric::group_grad_abs_mean,
                 .step_metric = Metric::grad_abs_mean,
                 .recording_id = 9,
                 .step_recording_id = 49,
                 .is_compared = false},  // it moves with the norm: each row would be there twice
    TensorNumber{.key = "grad_zero_ratio",
                 .tensor_key = "zero_ratio",
                 .title = "Zeros in the gradient",
                 .label = "zeros",
                 .words = "zeros",
                 .site = Site::grad,
                 .join = Join::share,
                 .unit = Unit::share,
                 .count = &TensorNumbers::zero,
                 .group = &GroupStats::grad_zero_ratio,
                 .metric = Metric::group_grad_zero_ratio,
                 .recording_id = 4},
    TensorNumber{.key = "grad_subnormal_ratio",
                 .tensor_key = "subnormal_ratio",
                 .title = "Subnormals in the gradient",
                 .label = "subnormals",
                 .words = "subnormals",
                 .site = Site::grad,
                 .join = Join::share,
                 .unit = Unit::share,
                 .count = &TensorNumbers::subnormal,
                 .group = &GroupStats::grad_subnormal_ratio,
                 .metric = Metric::group_grad_subnormal_ratio,
                 .recording_id = 8,
                 .is_compared = false},  // one against none is a larger factor than any norm's
    TensorNumber{.key = "weight_norm",
                 .tensor_key = "norm",
                 .title = "Weight norm",
                 .label = "weight norm",
                 .words = "weight norm",
                 .site = Site::weight,
                 .join = Join::norm,
                 .value = &TensorNumbers::norm,
                 .group = &GroupStats::weight_norm,
                 .metric = Metric::group_weight_norm,
                 .recording_id = 5},
    TensorNumber{.key = "update_ratio",
                 .title = "Update / weight",
                 .label = "update / weight",
                 .words = "update ratio",
                 .site = Site::weight,
                 .join = Join::update,
                 .unit = Unit::ratio,
                 .group = &GroupStats::update_ratio,
                 .metric = Metric::group_update_ratio,
                 .recording_id = 6},
};

/// A tensor's numbers as the columns of a recording, by id: for good, never used again.
struct TensorColumn {
  std::uint32_t recording_id;
  double TensorNumbers::* value;
};
inline constexpr std::array kTensorColumns{
    TensorColumn{8, &TensorNumbers::norm},      TensorColumn{9, &TensorNumbers::sum},
    TensorColumn{10, &TensorNumbers::abs_max},  TensorColumn{11, &TensorNumbers::abs_min_nonzero},
    TensorColumn{12, &TensorNumbers::abs_mean},
};

/// A tensor's own number; absent if nothing of the kind was measured. Not for join update.
[[nodiscard]] inline std::optional<double> value_of(const TensorNumber& number,
                                                    const TensorNumbers& tensor) noexcept {
  if (number.count != nullptr) return share_of(tensor.*number.count, tensor.numel);
  if (number.value == nullptr || !has_finite(tensor)) return std::nullopt;
  const double value = tensor.*number.value;
  // The smallest of nothing is infinite.
  if (number.join == Join::min && !std::isfinite(value)) return std::nullopt;
  return value;
}

/// A parameter's number in one step.
[[nodiscard]] inline std::optional<double> value_of(const TensorNumber& number,
                                                    const ParamStats& param) noexcept {
  if (number.join == Join::update) return param.update_ratio;
  const auto& tensor = number.site == Site::grad ? param.grad : param.weight;
  return tensor ? value_of(number, *tensor) : std::nullopt;
}

/// Adds `value` to what is there, by a rule that needs no other number: joins norm, max and min.
inline void join_into(std::optional<double>& into, Join join, double value) noexcept {
  if (!into)
    into = value;
  else if (join == Join::norm)
    into = std::hypot(*into, value);  // neither over- nor underflows
  else
    into = join == Join::max ? std::fmax(*into, value) : std::fmin(*into, value);
}

/// One number of several tensors: of a group or of a step. Not for join update.
class JoinedNumber {
 public:
  void add(const TensorNumber& number, const TensorNumbers& tensor) noexcept {
    if (number.join == Join::share) {
      count_ += tensor.*number.count;
      elements_ += tensor.numel;
      value_ = share_of(count_, elements_);
      return;
    }
    const std::optional<double> value = value_of(number, tensor);
    if (!value) return;
    if (number.join != Join::mean) return join_into(value_, number.join, *value);
    const std::int64_t finite = tensor.numel - sum_of(tensor.nonfinite);
    elements_ += finite;
    const double before = value_.value_or(0);
    // Means, not sums, so that it does not overflow.
    value_ =
        before + (*value - before) * (static_cast<double>(finite) / static_cast<double>(elements_));
  }
  /// Absent if nothing of the kind was measured.
  [[nodiscard]] std::optional<double> value() const noexcept { return value_; }

 private:
  std::optional<double> value_;
  std::int64_t count_ = 0;     ///< of join share
  std::int64_t elements_ = 0;  ///< of joins share and mean
};

/// Sum of a tensor's finite elements over their number.
[[nodiscard]] inline std::optional<double> mean_of(const TensorNumbers& numbers) noexcept {
  const std::int64_t finite = numbers.numel - sum_of(numbers.nonfinite);
  if (finite <= 0) return std::nullopt;
  return numbers.sum / static_cast<double>(finite);
}

}  // namespace gradvane::record
