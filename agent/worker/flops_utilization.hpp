#pragma once
// Model FLOPs utilization (MFU; Chowdhery et al., PaLM, 2022, appendix B): the FLOPs that the model needs for the
// tokens of a second, as a share of what the hardware can do.
#include <optional>

#include "record/step_record.hpp"

namespace gradvane::agent {

/// Over the same window as Status::steps_per_second: tokens and seconds are averaged, a new step with weight 0.1.
/// The worker's.
class FlopsUtilization {
 public:
  /// @param flops_per_token  forward and backward pass of the model, in FLOP; 0: not known
  /// @param peak_flops       of the devices of this process, in FLOP/s; 0: not known
  FlopsUtilization(double flops_per_token, double peak_flops) noexcept
      : share_(flops_per_token > 0 && peak_flops > 0 ? flops_per_token / peak_flops : 0) {}

  /// Absent if an option is not known, and for a step whose tokens or time are not.
  std::optional<double> add(const record::StepRecord& record) noexcept {
    if (share_ <= 0 || !record.tokens || !record.step_seconds || !(*record.step_seconds > 0))
      return std::nullopt;
    // The first sample starts it: an average that starts at 0 would read low for long.
    const double weight = seconds_ == 0 ? 1.0 : kNew;
    tokens_ += weight * (*record.tokens - tokens_);
    seconds_ += weight * (*record.step_seconds - seconds_);
    return tokens_ / seconds_ * share_;
  }

 private:
  static constexpr double kNew = 0.1;
  double share_;  ///< seconds that a token takes at the peak
  double tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace gradvane::agent
