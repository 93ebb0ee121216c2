"""Healthy runs of many kinds are told nothing of. bench/false_alarms measures the same over longer ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

SOURCE = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(SOURCE / "bench" / "false_alarms"))

import healthy_other  # noqa: E402
import healthy_text  # noqa: E402
from training import Run  # noqa: E402

RUNS = [*healthy_other.RUNS, healthy_text.transformer_adamw_warm_up_cosine,
        healthy_text.scaler_from_a_scale_that_is_too_high, healthy_text.lstm_sparse_embedding_two_optimizers]
# Losses under a heavy tail do jump and come back: that is a spike, and is told as one.
SPIKES = {"heavy_tailed_targets"}


@pytest.mark.parametrize("train", RUNS, ids=lambda train: train.__name__)
def test_a_healthy_run_has_no_incident(train):
    torch.set_num_threads(1)
    run = Run(500, seed=1)
    train(run)
    run.end()
    if train.__name__ in SPIKES:
        run.incidents.pop("loss_spike", None)
    assert not run.incidents, run.evidence
