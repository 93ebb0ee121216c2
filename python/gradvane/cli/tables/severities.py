"""Made by scripts/make_numbers.py from record/incident_classes.hpp and record/alert_rules.hpp.

Do not edit: change the table there.
"""

from __future__ import annotations

SEVERITY = {
    "nonfinite_loss": "critical",
    "nonfinite_grad": "critical",
    "nonfinite_weight": "critical",
    "sync_budget": "warning",
    "own_sync_budget": "warning",
    "amp_overflow": "warning",
    "skipped_steps": "warning",
    "loss_spike": "info",
    "loss_divergence": "warning",
    "random_guess": "warning",
    "grad_exploding": "warning",
    "grad_vanishing": "warning",
    "grad_norm_drift": "warning",
    "grad_health": "warning",
    "dead_group": "warning",
    "stalled": "critical",
    "data_dropped": "warning",
    "agent_cost": "warning",
    "grad_norm_bound": "warning",
    "rollback": "warning",
    "agreement_lost": "warning",
    "replica_mismatch": "critical",
}
"""of the alert of an incident class"""
