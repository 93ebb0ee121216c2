#pragma once
// From a step's facts and ring slots to its record. Pure: no clock, no I/O, no torch; one per thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "collectors/steps/read_plan.hpp"
#include "collectors/steps/step_facts.hpp"
#include "kernels/result_ring.hpp"
#include "kernels/tensor_stats.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {

struct HealthThresholds {
  double vanishing = 1e-7;  ///< per-parameter gradient norm below which it counts as vanishing
  double exploding = 10.0;  ///< and above which as exploding
};

/// What the ring still held of a step. Empty spans: not read, or overwritten before it was harvested.
struct StepSlots {
  std::shared_ptr<const ReadPlan> plan;             ///< of all
  std::span<const kernels::TensorStats> gradients;  ///< one a parameter, the loss[, its scale]
  std::span<const kernels::TensorStats> loss;     ///< one, where the loss came after the gradients
  std::span<const kernels::TensorStats> weights;  ///< one a parameter, then one update sample each
  std::span<const kernels::TensorStats> user = {};  ///< one a user metric, those from a device
};

/// Builds the records of a run, in order.
class StepBuilder {
 public:
  explicit StepBuilder(HealthThresholds thresholds) : thresholds_(thresholds) {}

  /// Valid until the next build(). `totals` are those of the step's last slot: older ones where the
  /// step's slots are lost, never newer ones, or a bad step would be counted twice.
  const record::StepRecord& build(const StepFacts& facts, const StepSlots& slots,
                                  const kernels::RunningTotals& totals);
  [[nodiscard]] const record::StepDetail& detail() const noexcept { return detail_; }
  /// Completes a record of sharded parameters with their norm over all processes.
  static void take_global_norm(record::StepRecord& record, double norm,
                               const StepFacts& facts) noexcept;
  [[nodiscard]] const std::shared_ptr<const record::ModelInfo>& model() const noexcept {
    return model_;
  }

 private:
  void follow(const std::shared_ptr<const record::ModelInfo>& model);
  void clear_detail();
  void take_facts(const StepFacts& facts);
  void take_loss(const kernels::TensorStats& stats);
  void take_scale(const kernels::TensorStats& stats);
  void take_user(std::span<const kernels::TensorStats> stats);
  void take_gradients(const ReadPlan& plan, std::span<const kernels::TensorStats> stats);
  void take_weights(const ReadPlan& plan, std::span<const kernels::TensorStats> weights,
                    std::span<const kernels::TensorStats> updates);
  void take_shard(const Shard& shard, record::TensorNumbers& numbers);
  void take_clipping();
  void judge_overflow(bool is_scalers);
  void judge_on_device(bool is_loss_in_gradients);
  void take_totals(const kernels::RunningTotals& totals);
  void sum_up_groups(const ReadPlan& plan);
  void blame(record::Site site, std::int32_t param, const kernels::TensorStats& stats);

  HealthThresholds thresholds_;
  std::shared_ptr<const record::ModelInfo> model_;
  record::StepRecord record_;
  record::StepDetail detail_;
  std::shared_ptr<const ReadPlan> filled_;  ///< whose parameters `detail_` has numbers of
  std::optional<double> clip_max_norm_;     ///< of the step in hand, as the next one
  std::int32_t losses_ = 1;
  double unscale_ = 1;  ///< by which every gradient is multiplied

  /// Overflows in a row that a gradient scaler is trusted to get over: from 65,536 it halves its scale
  /// 16 times on the way to 1.
  static constexpr std::int32_t kTrustedOverflows = 16;
  std::int32_t overflows_in_a_row_ = 0;
  record::NonfiniteCounts overflowed_{};  ///< gradient elements that a scaler dealt with, to date
  std::int64_t overflowed_steps_ = 0;
};

}  // namespace gradvane::collectors
