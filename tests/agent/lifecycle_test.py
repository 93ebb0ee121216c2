"""However a run ends, its last steps are exported and how it ended can be seen."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "lifecycle_program"
STEPS = 20


# Their own locks, the allocator's above all, are not free in the child if a thread of the parent held one.
not_under_a_sanitizer = pytest.mark.skipif(
    os.environ.get("GRADVANE_SANITIZE", "") != "", reason="GCC's sanitizers do not survive fork()"
)


class Run:
    def __init__(self, tmp_path, how, **environment):
        tmp_path.mkdir(exist_ok=True)
        self.directory = tmp_path / "run"
        self.log = tmp_path / "steps.jsonl"
        self.process = subprocess.Popen(
            [PROGRAM, how],
            env={
                **os.environ,
                "GRADVANE_RUN_DIR": str(self.directory),
                "GRADVANE_STEP_LOG": str(self.log),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self):
        self.out, self.err = self.process.communicate(timeout=120)
        return self.process.returncode

    def endpoint(self, rank=0):
        return json.loads((self.directory / f"endpoint.rank{rank}.json").read_text())

    def steps(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.mark.parametrize(
    ("how", "status", "state"),
    [
        ("return", 0, "finished"),
        ("exit0", 0, "finished"),
        ("exit3", 3, "failed"),
        ("fail", 0, "failed"),
        ("caught", 5, "failed"),
        ("terminate", -signal.SIGABRT, "failed"),
    ],
)
def test_every_step_is_exported_and_the_end_is_named(tmp_path, how, status, state):
    run = Run(tmp_path, how)
    assert run.wait() == status, run.err
    assert [step["step"] for step in run.steps()] == list(range(1, STEPS + 1))
    assert run.endpoint()["state"] == state


def test_sigterm_exports_the_last_steps_and_then_kills_as_it_would_have(tmp_path):
    run = Run(tmp_path, "sigterm")
    assert run.process.stdout.readline() == "ready\n"
    assert run.endpoint()["state"] == "running"
    url = run.endpoint()["url"]
    with urllib.request.urlopen(url + "/api/v1/status", timeout=10) as answer:
        assert json.load(answer)["state"] == "running"
    run.process.terminate()
    assert run.wait() == -signal.SIGTERM
    assert run.endpoint()["state"] == "failed"
    assert len(run.steps()) >= STEPS


def test_a_handler_of_the_programs_own_is_left_alone(tmp_path):
    assert Run(tmp_path, "own-sigterm").wait() == 7


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("stopped", -signal.SIGTERM),
        ("stopped-usr1", -signal.SIGUSR1),
        ("second-agent", -signal.SIGTERM),
        ("wrapped", -signal.SIGTERM),
        ("wrapped-stopped", -signal.SIGTERM),
    ],
)
def test_a_signal_does_what_it_does_without_an_agent(tmp_path, how, status):
    run = Run(tmp_path, how)
    assert run.wait() == status, run.err


@not_under_a_sanitizer
def test_a_forked_child_dies_by_a_signal_that_the_agent_handles(tmp_path):
    run = Run(tmp_path, "child")
    assert run.wait() == 0, run.err


def test_the_end_comes_even_if_the_worker_never_does(tmp_path):
    rows = {
        "stuck-exit": 3,
        "stuck-stop": 4,
        "stuck-sigterm": -signal.SIGTERM,
        "stuck-twice": -signal.SIGTERM,
    }
    began = time.monotonic()
    runs = {how: Run(tmp_path / how, how) for how in rows}
    assert {how: run.wait() for how, run in runs.items()} == rows
    assert time.monotonic() - began < 55, "they would sleep for 60 seconds"


@not_under_a_sanitizer
def test_a_forked_child_is_inert_and_the_parents_run_goes_on(tmp_path):
    run = Run(tmp_path, "fork")
    assert run.wait() == 0, run.err
    # Nothing of the child's three steps is in the parent's log.
    assert [step["step"] for step in run.steps()] == list(range(1, 2 * STEPS + 1))
    assert run.endpoint()["state"] == "finished"


@not_under_a_sanitizer
def test_a_forked_child_that_trains_gets_an_agent_of_its_own(tmp_path):
    run = Run(tmp_path, "fork-trains")
    assert run.wait() == 0, run.err


def test_switched_off_it_leaves_no_trace(tmp_path):
    run = Run(tmp_path, "return", GRADVANE="off")
    assert run.wait() == 0
    assert not run.directory.exists()
    assert not run.log.exists()
    assert run.err == ""


def test_a_bad_option_says_what_is_allowed_and_stops_the_set_up(tmp_path):
    run = Run(tmp_path, "return", GRADVANE_MODE="sometimes")
    assert run.wait() == 5
    assert "GRADVANE_MODE: mode = 'sometimes' is not allowed; allowed: lagged, immediate" in run.err


def test_ranks_of_one_host_have_files_and_logs_of_their_own(tmp_path):
    runs = [
        Run(tmp_path, "return", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
        for rank in range(2)
    ]
    assert [run.wait() for run in runs] == [0, 0]
    for rank, run in enumerate(runs):
        assert run.endpoint(rank)["rank"] == rank
        log = tmp_path / f"steps.rank{rank}.jsonl"
        assert len(log.read_text().splitlines()) == STEPS
