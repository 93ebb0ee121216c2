#pragma once
// The table of numbers: each number of a step, of a group and of a parameter that is shown anywhere, in one row.
// Metrics, API, history, heat map, sorting, recordings, diff, drift and the page go over these rows: a number
// that gets a row here is in all of them. docs/numbers.md and the page's numbers.ts are made from it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "record/metric_catalogue.hpp"
#include "record/step_record.hpp"
#include "record/tensor_numbers.hpp"

namespace gradvane::record {

struct StepNumber {
  std::string_view key;    ///< in the history, and in the step log if it is there
  std::string_view title;  ///< a heading: "Gradient norm"
  std::string_view words;  ///< in a sentence: "gradient norm"
  Unit unit = Unit::plain;
  std::optional<double> StepRecord::* stored = nullptr;       ///< where the record has it
  std::optional<std::int64_t> StepRecord::* bytes = nullptr;  ///< the same, for whole numbers
  /// If more than what is stored decides what is shown.
  std::optional<double> (*of)(const StepRecord&) = nullptr;
  std::optional<Metric> metric = {};  ///< a gauge of this value, by optimizer if it has the label
  std::optional<Site> site = {};      ///< it is a number over the finite elements of this site
  bool is_logged = false;             ///< in the step log and in /api/v1/steps, under its key
  bool is_charted = false;            ///< in /api/v1/history
  bool is_compared = false;           ///< by diff
  bool is_seldom = false;  ///< measured in some steps only: compared in steps in which both have it
  bool needs_finite = false;  ///< absent if no gradient element of this process is finite
  bool drifts = false;        ///< its course before a fault is reported
};

namespace detail {

template <auto member>
std::optional<double> field(const StepRecord& record) {
  const auto& value = record.*member;
  if constexpr (requires { value.has_value(); }) {
    if (!value) return std::nullopt;
    return static_cast<double>(*value);
  } else {
    return static_cast<double>(value);
  }
}

/// Only if gradients were read.
template <auto member>
std::optional<double> gradient_field(const StepRecord& record) {
  return record.grad_numel > 0 ? field<member>(record) : std::nullopt;
}

/// Only if an element was finite. Of sharded gradients other processes may have had one.
template <auto member>
std::optional<double> norm_field(const StepRecord& record) {
  const bool is_known = has_finite_gradient(record) || record.norm_contribution.has_value() ||
                        record.shard_grad_norm.has_value();
  return is_known ? record.*member : std::nullopt;
}
template <auto member>
std::optional<double> share_field(const StepRecord& record) {
  return share_of(record.*member, record.grad_numel);
}

std::optional<double> largest_rate(const StepRecord& record);
std::optional<double> host_syncs(const StepRecord& record);
std::optional<double> host_sync_seconds(const StepRecord& record);
std::optional<double> tokens_per_second(const StepRecord& record);

inline constexpr std::array kFirstNumbers{
    StepNumber{.key = "loss",
               .title = "Loss",
               .words = "loss",
               .stored = &StepRecord::loss,
               .metric = Metric::loss,
               .is_logged = true,
               .is_charted = true,
               .is_compared = true,
               .drifts = true},
    StepNumber{.key = "grad_norm",
               .title = "Gradient norm",
               .words = "gradient norm",
               .stored = &StepRecord::grad_norm,
               .of = detail::norm_field<&StepRecord::grad_norm>,
               .metric = Metric::grad_norm,
               .site = Site::grad,
               .is_logged = true,
               .is_charted = true,
               .is_compared = true,
               .drifts = true},
    StepNumber{.key = "grad_norm_at_step",
               .title = "Gradient norm after clipping",
               .words = "gradient norm after clipping",
               .stored = &StepRecord::grad_norm_at_step,
               .of = detail::norm_field<&StepRecord::grad_norm_at_step>,
               .metric = Metric::grad_norm_at_step,
               .site = Site::grad,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "shard_grad_norm",
               .title = "Gradient norm of this shard",
               .words = "gradient norm of this shard",
               .stored = &StepRecord::shard_grad_norm,
               .metric = Metric::shard_grad_norm,
               .site = Site::grad,
               .is_logged = true,
               .needs_finite = true},
    StepNumber{.key = "clip_coefficient",
               .title = "Clip coefficient",
               .words = "clip coefficient",
               .stored = &StepRecord::clip_coefficient,
               .metric = Metric::clip_coefficient,
               .is_logged = true,
               .is_charted = true},
};

/// Those that are joined over tensors as a group's are: their rows are in kTensorNumbers.
constexpr StepNumber of_step(const TensorNumber& number) {
  return {.key = number.key,
          .title = number.title,
          .words = number.words,
          .unit = number.unit,
          .stored = number.step,
          .metric = number.step_metric,
          .site = number.site,
          .is_logged = true,
          .is_charted = true,
          .is_compared = number.is_compared,
          .needs_finite = true,
          .drifts = number.drifts};
}

inline constexpr std::array kLaterNumbers{
    StepNumber{.key = "grad_zero_ratio",
               .title = "Zeros in the gradients",
               .words = "share of zeros",
               .unit = Unit::share,
               .of = detail::share_field<&StepRecord::grad_zero>,
               .metric = Metric::grad_zero_ratio,
               .site = Site::grad,
               .is_charted = true},
    StepNumber{.key = "grad_subnormal_ratio",
               .title = "Subnormals in the gradients",
               .words = "share of subnormals",
               .unit = Unit::share,
               .of = detail::share_field<&StepRecord::grad_subnormal>,
               .metric = Metric::grad_subnormal_ratio,
               .site = Site::grad,
               .is_charted = true},
    StepNumber{.key = "grad_health",
               .title = "Health of the gradients",
               .words = "health of the gradients",
               .stored = &StepRecord::grad_health,
               .metric = Metric::grad_health,
               .is_logged = true},
    StepNumber{.key = "params_vanishing",
               .title = "Parameters that vanish",
               .words = "parameters that vanish",
               .of = detail::gradient_field<&StepRecord::vanishing>,
               .metric = Metric::params_vanishing},
    StepNumber{.key = "params_exploding",
               .title = "Parameters that explode",
               .words = "parameters that explode",
               .of = detail::gradient_field<&StepRecord::exploding>,
               .metric = Metric::params_exploding},
    StepNumber{.key = "weight_norm",
               .title = "Weight norm",
               .words = "weight norm",
               .stored = &StepRecord::weight_norm,
               .metric = Metric::weight_norm,
               .site = Site::weight,
               .is_logged = true,
               .is_charted = true,
               .is_compared = true,
               .is_seldom = true},
    StepNumber{.key = "update_ratio",
               .title = "Update / weight",
               .words = "update ratio",
               .unit = Unit::ratio,
               .stored = &StepRecord::update_ratio,
               .metric = Metric::update_ratio,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "lr",
               .title = "Learning rate",
               .words = "largest learning rate",
               .of = detail::largest_rate,
               .is_charted = true},
    StepNumber{.key = "loss_scale",
               .title = "Loss scale",
               .words = "loss scale",
               .stored = &StepRecord::loss_scale,
               .metric = Metric::loss_scale,
               .is_logged = true,
               .is_charted = true,
               .is_compared = true,
               .drifts = true},
    StepNumber{.key = "step_seconds",
               .title = "Step time",
               .words = "step time",
               .unit = Unit::seconds,
               .stored = &StepRecord::step_seconds,
               .is_logged = true,
               .is_charted = true,
               .drifts = true},
    StepNumber{.key = "agent_seconds",
               .title = "Time in Gradvane's hooks",
               .words = "time in Gradvane's hooks",
               .unit = Unit::seconds,
               .of = detail::field<&StepRecord::agent_seconds>,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "rank_wait_seconds",
               .title = "Time waiting for other ranks",
               .words = "time waiting for other ranks",
               .unit = Unit::seconds,
               .stored = &StepRecord::rank_wait_seconds,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "host_syncs",
               .title = "Host syncs",
               .words = "host syncs",
               .unit = Unit::calls,
               .of = detail::host_syncs,
               .is_charted = true,
               .drifts = true},
    StepNumber{.key = "host_sync_seconds",
               .title = "Time blocked by host syncs",
               .words = "time blocked by host syncs",
               .unit = Unit::seconds,
               .of = detail::host_sync_seconds,
               .is_charted = true},
    StepNumber{.key = "tokens_per_second",
               .title = "Tokens per second",
               .words = "tokens per second",
               .unit = Unit::per_second,
               .of = detail::tokens_per_second,
               .is_charted = true},
    StepNumber{.key = "model_flops_utilization",
               .title = "Model FLOPs utilization",
               .words = "model FLOPs utilization",
               .unit = Unit::share,
               .stored = &StepRecord::model_flops_utilization,
               .metric = Metric::model_flops_utilization_ratio,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "tokens",
               .title = "Tokens",
               .words = "tokens",
               .stored = &StepRecord::tokens,
               .is_logged = true},
    StepNumber{.key = "samples",
               .title = "Samples",
               .words = "samples",
               .stored = &StepRecord::samples,
               .is_logged = true},
    StepNumber{.key = "process_resident_bytes",
               .title = "Resident memory",
               .words = "resident memory",
               .unit = Unit::bytes,
               .bytes = &StepRecord::process_resident_bytes,
               .of = detail::field<&StepRecord::process_resident_bytes>,
               .metric = Metric::process_resident_memory_bytes,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "device_allocated_bytes",
               .title = "Device memory allocated",
               .words = "device memory allocated",
               .unit = Unit::bytes,
               .bytes = &StepRecord::device_allocated_bytes,
               .of = detail::field<&StepRecord::device_allocated_bytes>,
               .metric = Metric::device_memory_allocated_bytes,
               .is_logged = true,
               .is_charted = true},
    StepNumber{.key = "device_reserved_bytes",
               .title = "Device memory reserved",
               .words = "device memory reserved",
               .unit = Unit::bytes,
               .bytes = &StepRecord::device_reserved_bytes,
               .of = detail::field<&StepRecord::device_reserved_bytes>,
               .metric = Metric::device_memory_reserved_bytes,
               .is_logged = true},
    StepNumber{.key = "device_peak_bytes",
               .title = "Device memory, peak",
               .words = "peak of the device memory",
               .unit = Unit::bytes,
               .bytes = &StepRecord::device_peak_bytes,
               .of = detail::field<&StepRecord::device_peak_bytes>,
               .metric = Metric::device_memory_peak_bytes,
               .is_logged = true},
    StepNumber{.key = "device_limit_bytes",
               .title = "Device memory, limit",
               .words = "limit of the device memory",
               .unit = Unit::bytes,
               .bytes = &StepRecord::device_limit_bytes,
               .of = detail::field<&StepRecord::device_limit_bytes>,
               .metric = Metric::device_memory_limit_bytes,
               .is_logged = true},
    StepNumber{.key = "device_allocation_retries",
               .title = "Allocation retries",
               .words = "allocation retries",
               .unit = Unit::calls,
               .bytes = &StepRecord::device_allocation_retries,
               .of = detail::field<&StepRecord::device_allocation_retries>,
               .is_logged = true},
    StepNumber{.key = "device_out_of_memory",
               .title = "Out of memory",
               .words = "allocations that failed",
               .unit = Unit::calls,
               .bytes = &StepRecord::device_out_of_memory,
               .of = detail::field<&StepRecord::device_out_of_memory>,
               .is_logged = true},
};

}  // namespace detail

inline constexpr auto kStepNumbers = [] {
  constexpr auto kJoined = static_cast<std::size_t>(std::ranges::count_if(
      kTensorNumbers, [](const TensorNumber& number) { return number.step != nullptr; }));
  std::array<StepNumber, detail::kFirstNumbers.size() + kJoined + detail::kLaterNumbers.size()>
      numbers{};
  auto at = std::ranges::copy(detail::kFirstNumbers, numbers.begin()).out;
  for (const TensorNumber& number : kTensorNumbers)
    if (number.step != nullptr) *at++ = detail::of_step(number);
  std::ranges::copy(detail::kLaterNumbers, at);
  return numbers;
}();

/// A step's number, as it is shown; absent if it was not measured.
[[nodiscard]] inline std::optional<double> value_of(const StepNumber& number,
                                                    const StepRecord& record) {
  if (number.of != nullptr) return number.of(record);
  return number.needs_finite && !has_finite_gradient(record) ? std::nullopt : record.*number.stored;
}

}  // namespace gradvane::record
