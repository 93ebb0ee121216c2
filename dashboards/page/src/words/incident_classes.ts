// Made by scripts/make_numbers.py from record/incident_classes.hpp. Do not edit: change the table there.

/** Gravity: what is nonfinite may have ruined what was trained; what is mild has not harmed it. */
export const INCIDENT_CLASSES = [
  { name: "nonfinite_loss", title: "Non-finite loss", gravity: "nonfinite" },
  { name: "nonfinite_grad", title: "Non-finite gradient", gravity: "nonfinite" },
  { name: "nonfinite_weight", title: "Non-finite weights", gravity: "nonfinite" },
  { name: "sync_budget", title: "More host syncs than allowed", gravity: "mild" },
  { name: "own_sync_budget", title: "More host syncs of Gradvane’s own than allowed", gravity: "mild" },
  { name: "amp_overflow", title: "Gradient scaler keeps overflowing", gravity: "training" },
  { name: "skipped_steps", title: "Many steps skipped", gravity: "training" },
  { name: "loss_spike", title: "Loss spike", gravity: "training" },
  { name: "loss_divergence", title: "Loss diverges", gravity: "training" },
  { name: "random_guess", title: "Loss back at random guessing", gravity: "training" },
  { name: "grad_exploding", title: "Gradients explode", gravity: "training" },
  { name: "grad_vanishing", title: "Gradients vanish", gravity: "training" },
  { name: "grad_norm_drift", title: "Gradient norm drifts", gravity: "training" },
  { name: "grad_health", title: "Gradient health low", gravity: "mild" },
  { name: "dead_group", title: "Group without gradient", gravity: "training" },
  { name: "stalled", title: "No step for long", gravity: "standstill" },
  { name: "data_dropped", title: "Records lost", gravity: "mild" },
  { name: "agent_cost", title: "Gradvane costs more than it may", gravity: "mild" },
  { name: "grad_norm_bound", title: "Gradient norm above the bound", gravity: "training" },
  { name: "rollback", title: "Rolled back", gravity: "training" },
  { name: "agreement_lost", title: "Ranks do not agree any more", gravity: "training" },
  { name: "replica_mismatch", title: "Replicas have different weights", gravity: "training" },
] as const;
