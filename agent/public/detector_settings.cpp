#include "agent/public/detector_settings.hpp"

#include <algorithm>

namespace gradvane::agent {

detectors::Settings detector_settings(const Options& options) {
  detectors::Settings settings;
  (void)detectors::parse_judged(options.detect, settings.judged);
  settings.is_alone = options.world_size <= 1;
  settings.cooldown_seconds = options.cooldown_seconds;
  settings.stall_seconds = options.stall_seconds;
  settings.loss.window = options.loss_window;
  settings.loss.min_history = std::max(options.loss_window / 2, 1);
  settings.loss.sigma = options.loss_sigma;
  settings.loss.ratio = options.loss_ratio;
  if (options.loss_absolute > 0) settings.loss.absolute = options.loss_absolute;
  settings.loss.in_a_row = options.loss_in_a_row;
  if (options.random_guess_loss > 0) settings.loss.random_guess = options.random_guess_loss;
  settings.norm.factor = options.exploding_factor;
  settings.norm.drift = options.drift_threshold;
  settings.gradient.vanishing_share = options.vanishing_share;
  settings.gradient.dead_after = options.dead_after;
  settings.skip.overflow_streak = options.overflow_streak;
  if (options.on_nonfinite == NonfinitePolicy::skip) settings.skip.norm_bound = options.skip_norm;
  settings.agent.cost_budget = options.cost_budget;
  if (options.sync_budget >= 0) settings.syncs.training = options.sync_budget;
  settings.syncs.after_steps = options.sync_budget_after;
  return settings;
}

}  // namespace gradvane::agent
