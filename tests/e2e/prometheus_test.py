"""A real Prometheus scrapes a real training run."""

import os
import subprocess
from pathlib import Path

import pytest
from real_prometheus import SERVERS, RealPrometheus
from training_run import TrainingRun, series

SOURCE = Path(os.environ["GRADVANE_SOURCE_DIR"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with TrainingRun(tmp_path_factory.mktemp("run"), "--clip", "1") as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(run, tmp_path_factory):
    target = run.endpoint()["url"].removeprefix("http://")
    configs = [{"job_name": "gradvane", "static_configs": [{"targets": [target]}]}]
    with RealPrometheus(tmp_path_factory.mktemp("prometheus"), configs) as server:
        run.wait_for(lambda: server.query("up == 1") and server.query("gradvane_steps_total"))
        yield server.query


def test_the_target_is_up_and_steps_move(run, prometheus):
    first = float(prometheus("gradvane_steps_total")[0]["value"][1])
    run.wait_for(lambda: prometheus(f"gradvane_steps_total > {first}") and prometheus("up == 1"))


def test_every_series_carries_run_and_rank(prometheus):
    for result in prometheus('{__name__=~"gradvane_.*"}'):
        assert result["metric"]["run"] == "char_gpt", result["metric"]
        assert result["metric"]["rank"] == "0"


def test_promtool_finds_nothing_to_complain_about(run):
    done = subprocess.run([SERVERS / "promtool", "check", "metrics"], input=run.get("/metrics"),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == ""


# What a run on a CPU, with one optimizer, no scaler and nothing of the user's own cannot have.
NOT_IN_THIS_RUN = {
    "gradvane_shard_grad_norm",  # nothing is sharded
    "gradvane_incident_info",  # nothing has gone wrong
    "gradvane_run_end_info",  # nor has it ended
    "gradvane_loss_scale", "gradvane_user_metric", "gradvane_samples_total",
    "gradvane_model_flops_utilization_ratio",  # its options were not given
    "gradvane_snapshots_total", "gradvane_snapshot_age_seconds", "gradvane_rollbacks_total", "gradvane_ranks_agree",  # no policy
    "gradvane_rank_wait_seconds_total",  # one rank
    "gradvane_device_memory_allocated_bytes", "gradvane_device_memory_reserved_bytes",
    "gradvane_device_memory_peak_bytes", "gradvane_device_memory_limit_bytes", "gradvane_device_allocation_retries_total",
    "gradvane_device_out_of_memory_total", "gradvane_device_info",
    # No GPU to wait for, so nothing is counted.
    "gradvane_host_syncs_total", "gradvane_host_sync_seconds_total",
    "gradvane_host_syncs_by_phase_total", "gradvane_host_sync_phase_seconds_total",
    "gradvane_host_sync_location_total", "gradvane_host_sync_location_seconds_total",
    "gradvane_device_polls_total", "gradvane_device_poll_seconds_total",
    "gradvane_step_host_syncs", "gradvane_sync_budget", "gradvane_sync_budget_breaches_total",
}


def test_every_metric_of_the_catalogue_that_applies_is_there(run):
    run.wait_for(lambda: run.step() > 3)
    run.wait_for(lambda: "# TYPE gradvane_process_resident_memory_bytes" in run.get("/metrics"))
    documented = {
        line.split("`")[1]
        for line in (SOURCE / "docs" / "metrics.md").read_text().splitlines()
        if line.startswith("| `gradvane_")
    }
    assert len(documented) > 40
    exposed = {
        line.split()[2]
        for line in run.get("/metrics").splitlines() if line.startswith("# TYPE gradvane_")
    }
    assert documented - exposed - NOT_IN_THIS_RUN == set()
    assert exposed - documented == set()


def test_the_run_can_be_seen_to_end(run):
    """Last: it ends the run."""
    assert series(run.samples(), "gradvane_run_state", state="running")[0][1] == 1
    run.__exit__()
    assert run.endpoint()["state"] == "finished"
