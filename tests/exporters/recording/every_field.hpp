#pragma once
// Every field of every record, by structured bindings: when a struct gains a field, this fails to compile. Then
// give the field the next free id and a place here. Ids are in exporters/recording/fields.hpp, those of a table's
// columns in detail_codec.cpp, those of the numbers of tensors in record/tensor_numbers.hpp.
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "exporters/recording/archive.hpp"

namespace gradvane::exporters::fakes {

using recording::like;

auto fields(like<record::FirstNonfinite> auto& r) {
  auto& [site, kind, param, element] = r;
  return std::tie(site, kind, param, element);
}
auto fields(like<record::StepSyncs> auto& r) {
  auto& [calls, seconds, polls] = r;
  return std::tie(calls, seconds, polls);
}
auto fields(like<record::StepRecord> auto& r) {
  auto& [step, run_step, optimizer, micro_steps, time, monotonic, loss, grad_norm,
         grad_norm_at_step, shard_grad_norm, norm_contribution, clip_coefficient, loss_scale,
         read_at, skipped, overflow_persists, grad_numel, grad_zero, grad_subnormal, grad_abs_max,
         grad_abs_min_nonzero, grad_abs_mean, grad_health, vanishing, exploding, params, nonfinite,
         site_measured, first_nonfinite, first_by_site, bad_micro_step, first_bad_rank,
         first_bad_loss, nonfinite_total, nonfinite_steps_total, weight_norm, update_ratio, lr,
         lr_count, user, user_count, step_seconds, phase_seconds, agent_seconds, rank_wait_seconds,
         tokens, samples, model_flops_utilization, process_resident_bytes, device_allocated_bytes,
         device_reserved_bytes, device_peak_bytes, device_limit_bytes, device_allocation_retries,
         device_out_of_memory, syncs, own_sync_budget, dropped_before, contiguous_copies] = r;
  return std::tie(
      step, run_step, optimizer, micro_steps, time, monotonic, loss, grad_norm, grad_norm_at_step,
      shard_grad_norm, norm_contribution, clip_coefficient, loss_scale, read_at, skipped,
      overflow_persists, grad_numel, grad_zero, grad_subnormal, grad_abs_max, grad_abs_min_nonzero,
      grad_abs_mean, grad_health, vanishing, exploding, params, nonfinite, site_measured,
      first_nonfinite, first_by_site, bad_micro_step, first_bad_rank, first_bad_loss,
      nonfinite_total, nonfinite_steps_total, weight_norm, update_ratio, lr, lr_count, user,
      user_count, step_seconds, phase_seconds, agent_seconds, rank_wait_seconds, tokens, samples,
      model_flops_utilization, process_resident_bytes, device_allocated_bytes,
      device_reserved_bytes, device_peak_bytes, device_limit_bytes, device_allocation_retries,
      device_out_of_memory, syncs, own_sync_budget, dropped_before, contiguous_copies);
}
auto fields(like<record::GroupStats> auto& r) {
  auto& [params, grad_norm, grad_abs_max, grad_abs_min_nonzero, grad_abs_mean, grad_zero_ratio,
         grad_subnormal_ratio, weight_norm, update_ratio, nonfinite] = r;
  return std::tie(params, grad_norm, grad_abs_max, grad_abs_min_nonzero, grad_abs_mean,
                  grad_zero_ratio, grad_subnormal_ratio, weight_norm, update_ratio, nonfinite);
}
auto fields(like<record::TensorNumbers> auto& r) {
  auto& [numel, zero, subnormal, nonfinite, first_nonfinite, norm, sum, abs_max, abs_min_nonzero,
         abs_mean] = r;
  return std::tie(numel, zero, subnormal, nonfinite, first_nonfinite, norm, sum, abs_max,
                  abs_min_nonzero, abs_mean);
}
auto fields(like<record::ParamStats> auto& r) {
  auto& [state, grad, weight, update_ratio] = r;
  return std::tie(state, grad, weight, update_ratio);
}
auto fields(like<record::StepDetail> auto& r) {
  auto& [groups, params] = r;
  return std::tie(groups, params);
}
auto fields(like<record::Appearance> auto& r) {
  auto& [site, run_step, first, param, counts, last_finite] = r;
  return std::tie(site, run_step, first, param, counts, last_finite);
}
auto fields(like<record::TracedModule> auto& r) {
  auto& [name, type, is_backward, run_step, at, micro_step] = r;
  return std::tie(name, type, is_backward, run_step, at, micro_step);
}
auto fields(like<record::Incident> auto& r) {
  auto& [id, kind, rank, first_step, last_step, steps, reopened, opened_at, closed_at, first, param,
         group, order, began_in, micro_step, module, evidence, last_good_step,
         last_good_checkpoint] = r;
  return std::tie(id, kind, rank, first_step, last_step, steps, reopened, opened_at, closed_at,
                  first, param, group, order, began_in, micro_step, module, evidence,
                  last_good_step, last_good_checkpoint);
}
auto fields(like<record::Setting> auto& r) {
  auto& [key, value, source, since] = r;
  return std::tie(key, value, source, since);
}
auto fields(like<record::RunInfo> auto& r) {
  auto& [run, run_id, rank, local_rank, world_size, host, pid, version, torch_version, start_time,
         settings] = r;
  return std::tie(run, run_id, rank, local_rank, world_size, host, pid, version, torch_version,
                  start_time, settings);
}
auto fields(like<record::ParamInfo> auto& r) {
  auto& [name, aliases, group, shape, numel, dtype, device, requires_grad] = r;
  return std::tie(name, aliases, group, shape, numel, dtype, device, requires_grad);
}
auto fields(like<record::DeviceInfo> auto& r) {
  auto& [device, uuid, name] = r;
  return std::tie(device, uuid, name);
}
auto fields(like<record::ModelInfo> auto& r) {
  auto& [id, params, groups, optimizers, user_metrics, devices] = r;
  return std::tie(id, params, groups, optimizers, user_metrics, devices);
}
auto fields(like<record::SyncTally> auto& r) {
  auto& [calls, seconds] = r;
  return std::tie(calls, seconds);
}
auto fields(like<record::SyncSite> auto& r) {
  auto& [id, kind, origin, phase, location, file, line, function, stack, thread, total, in_steps,
         max_seconds] = r;
  return std::tie(id, kind, origin, phase, location, file, line, function, stack, thread, total,
                  in_steps, max_seconds);
}
auto fields(like<record::SyncSummary> auto& r) {
  auto& [source, reason, detail, totals, parts, by_phase, polls, dropped, covered_seconds,
         blind_seconds, gaps, steps, whole_steps, budget, own_budget, steps_over, steps_uncounted,
         most_in_step, most_in_step_at, sites] = r;
  return std::tie(source, reason, detail, totals, parts, by_phase, polls, dropped, covered_seconds,
                  blind_seconds, gaps, steps, whole_steps, budget, own_budget, steps_over,
                  steps_uncounted, most_in_step, most_in_step_at, sites);
}

/// Gives every number, word and enumerator a value of its own, and none its default; vectors get two elements.
class Filler {
 public:
  template <typename T>
  void fill(T& value) {
    if constexpr (std::same_as<T, bool>) {
      value = !T{};
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(record::kCount<T> - 1);
    } else if constexpr (std::integral<T>) {
      ++next_;
      value = static_cast<T>(std::is_signed_v<T> && next_ % 2 == 0 ? -next_ : next_);
    } else if constexpr (std::same_as<T, double>) {
      value = static_cast<double>(next_++) + 1.0 / 3;
    } else if constexpr (std::same_as<T, std::string>) {
      value = "word " + std::to_string(next_++);
    } else if constexpr (recording::detail::IsOptional<T>::value) {
      fill(value.emplace());
    } else if constexpr (recording::detail::IsVector<T>::value) {
      value.resize(2);
      for (auto& one : value) fill(one);
    } else if constexpr (recording::detail::IsArray<T>::value) {
      for (auto& one : value) fill(one);
    } else {
      std::apply([&](auto&... field) { (fill(field), ...); }, fields(value));
    }
  }

 private:
  std::int64_t next_ = 1000;
};

/// Every field as text, bit for bit.
template <typename T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<int>(value) << ' ';
  } else if constexpr (std::same_as<T, double>) {
    out << std::hex << std::bit_cast<std::uint64_t>(value) << std::dec << ' ';
  } else if constexpr (std::integral<T>) {
    out << +value << ' ';
  } else if constexpr (std::same_as<T, std::string>) {
    out << '"' << value << "\" ";
  } else if constexpr (recording::detail::IsOptional<T>::value) {
    if (!value) out << "absent ";
    if (value) print(out, *value);
  } else if constexpr (recording::detail::IsVector<T>::value ||
                       recording::detail::IsArray<T>::value) {
    out << '[';
    for (const auto& one : value) print(out, one);
    out << "] ";
  } else {
    out << '{';
    std::apply([&](const auto&... field) { (print(out, field), ...); }, fields(value));
    out << "} ";
  }
}

template <typename T>
std::string text_of(const T& value) {
  std::ostringstream out;
  print(out, value);
  return out.str();
}

template <typename T>
T filled() {
  T value;
  Filler().fill(value);
  return value;
}

template <>
inline record::StepRecord filled() {
  record::StepRecord record;
  Filler().fill(record);
  record.lr_count = record::kMaxLearningRates;
  record.user_count = record::kMaxUserMetrics;
  return record;
}

}  // namespace gradvane::exporters::fakes
