"""bench/gpu/gpt2_steps.py on a CPU: all arms have rows, the plain arm is plain, and time that runs out is said."""

import json
import os
import sys
import threading

import gpt2_arms
import gpt2_steps
import pytest
import torch
from gpt2_model import SMALL, Training

import gradvane


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def training():
    return Training(SMALL, torch.device("cpu"), "parameters", 8)


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["gpt2_steps.py", "--device", "cpu", "--small", "--sequence", "8", *words])
    status = gpt2_steps.main()
    out, err = capsys.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err


def test_a_rehearsal_has_a_row_for_each_arm_and_length(monkeypatch, capsys):
    monkeypatch.setenv("GRADVANE_MODE", "immediate")  # would be stronger than what an arm asks for
    status, rows, err = run(monkeypatch, capsys, "--lengths", "3,12", "--block-seconds", "0.03")
    assert status == 0, err
    assert rows[-1] == {"kind": "done"}
    arms = [row for row in rows if row["kind"] == "arm"]
    assert [(row["target_seconds"], row["arm"]) for row in arms] == \
        [(length, arm) for length in (0.003, 0.012) for arm in gpt2_arms.ARMS]
    blocks = [row for row in rows if row["kind"] == "block"]
    assert len(blocks) == 2 * 2 * len(gpt2_arms.ARMS)
    for row in arms:
        own = [block for block in blocks if all(block[key] == row[key] for key in ("arm", "target_seconds"))]
        assert row["steps"] == sum(len(block["step_seconds"]) for block in own) >= 2 * gpt2_steps.STEPS[0]
        assert 0 < row["p10_seconds"] <= row["median_seconds"] <= row["p90_seconds"]
        assert row["over_off"]["least"] <= row["over_off"]["median"] <= row["over_off"]["most"]
        assert row["device"] == "cpu" and row["torch"] == torch.__version__ and row["commit"] and row["date"]
        assert row["host_syncs_per_step"] is None and row["peak_bytes"] is None, "nothing of a device is made up"
        assert row.get("problems", []) == []
        assert ("incidents" in row) == (row["arm"] in gpt2_arms.OPTIONS)
    plain = [row for row in arms if row["arm"] == "off"]
    assert all(row["over_off"] == {"median": 1, "least": 1, "most": 1} for row in plain)


def test_what_does_not_fit_into_the_time_is_left_out_and_said(monkeypatch, capsys):
    status, rows, err = run(monkeypatch, capsys, "--lengths", "3,12", "--minutes", "0.01")
    assert status == 0 and "minutes are too few" in err
    assert rows[-1] == {"kind": "stopped", "minutes": 0.01, "left_out_ms": [3, 12]}
    assert not any(row["kind"] == "block" for row in rows)


def native_threads():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("arm", gpt2_arms.OPTIONS)
def test_the_plain_arm_is_plain_after_an_agent(training, arm):
    training.step()
    plain, before = gpt2_arms.visible_state(training), (native_threads(), threading.active_count())
    row = gpt2_arms.run_block(training, arm, 2, plain)
    assert row["problems"] == []
    assert gpt2_arms.visible_state(training) == plain
    assert native_threads() <= before[0] and threading.active_count() <= before[1]


def test_an_agent_that_stays_is_seen(training, tmp_path):
    training.step()
    plain = gpt2_arms.visible_state(training)
    agent = gradvane.attach(training.model, training.optimizer, port=-1, run_dir=tmp_path)
    try:
        assert gpt2_arms.visible_state(training) != plain
    finally:
        agent.detach()
    assert gpt2_arms.visible_state(training) == plain


def test_an_agent_that_reads_nothing_is_a_problem(training, monkeypatch):
    monkeypatch.setattr(training, "step", lambda check=None: None)
    row = gpt2_arms.run_block(training, "lagged", 2, gpt2_arms.visible_state(training))
    assert row["problems"] == [f"the agent saw 0 steps of {gpt2_arms.WARM_UP + 2}", "the agent read no gradients"]


def block(seconds, **more):
    return {"step_seconds": seconds, "median_seconds": sorted(seconds)[len(seconds) // 2], "mean_seconds": seconds[0],
            "host_seconds": 0.5, "peak_bytes": 10, "device_used_bytes": 100, **more}


def test_ratios_are_of_a_round_and_peaks_are_of_all():
    plain = [block([1, 1, 1]), block([2, 2, 2], peak_bytes=12)]
    others = [block([1.1, 1.1, 1.1], peak_bytes=30), block([3, 3, 3])]
    row = gpt2_steps.arm_row("lagged", others, plain, {"seconds_before_any_agent": 1})
    assert row["over_off"] == {"median": pytest.approx(1.3), "least": pytest.approx(1.1), "most": pytest.approx(1.5)}
    assert (row["peak_bytes"], row["off_peak_bytes"], row["steps"]) == (30, 12, 6)


def test_the_naive_check_stops_at_what_is_not_finite(training):
    training.step()
    assert gpt2_arms.isfinite_per_parameter(training.params)
    training.params[-1].grad[0] = float("nan")
    assert not gpt2_arms.isfinite_per_parameter(training.params)
