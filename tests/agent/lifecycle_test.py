"""However a run ends, its last steps are exported and how it ended can be seen."""

import json
import os
import re
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


def state_at(url):
    with urllib.request.urlopen(url + "/api/v1/status", timeout=10) as answer:
        return json.load(answer)["state"]


def scrape(url):
    """Until one counts: an answer does when it has been delivered, a moment after it is here."""
    text = ""
    while not re.search(r"^gradvane_scrapes_total\S* [1-9]", text, re.MULTILINE):
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            text = answer.read().decode()


def test_sigterm_exports_the_last_steps_and_then_kills_as_it_would_have(tmp_path):
    run = Run(tmp_path, "sigterm")
    assert run.process.stdout.readline() == "ready\n"
    assert run.endpoint()["state"] == "running"
    url = run.endpoint()["url"]
    assert state_at(url) == "running"
    run.process.terminate()
    assert run.wait() == -signal.SIGTERM
    assert run.endpoint()["state"] == "failed"
    assert len(run.steps()) >= STEPS


def test_what_is_trained_while_the_end_waits_for_a_scrape_is_recorded_too(tmp_path):
    run = Run(tmp_path, "sigterm", LIFECYCLE_STEPS=str(tmp_path / "done"), GRADVANE_LINGER_INCIDENT_SECONDS="60")
    assert run.process.stdout.readline() == "ready\n"
    url = run.endpoint()["url"]
    scrape(url)
    run.process.terminate()
    deadline = time.monotonic() + 60
    while state_at(url) != "failed" and time.monotonic() < deadline:
        time.sleep(0.02)
    at_the_signal = len(run.steps())
    done = 0
    # It trains on: SIGTERM has not killed it, since nobody has scraped its end yet.
    while done < at_the_signal + 10 and time.monotonic() < deadline:
        time.sleep(0.1)
        done = int((tmp_path / "done").read_text() or 0)
    assert done >= at_the_signal + 10
    with urllib.request.urlopen(url + "/metrics", timeout=10):
        pass
    assert run.wait() == -signal.SIGTERM
    # The last few milliseconds are between our end and the signal.
    assert len(run.steps()) >= done


def test_ctrl_c_ends_a_run_as_interrupted_and_kills_as_it_would_have(tmp_path):
    run = Run(tmp_path, "sigterm", GRADVANE_LINGER_INCIDENT_SECONDS="60")
    assert run.process.stdout.readline() == "ready\n"
    scrape(run.endpoint()["url"])
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == -signal.SIGINT
    assert time.monotonic() - began < 50, "nobody who types Ctrl-C waits for a scrape"
    assert run.endpoint()["state"] == "failed"
    assert len(run.steps()) >= STEPS
    assert [file.name for file in run.directory.glob("*.failed.gvrec")]


def test_one_line_says_where_a_run_is_seen(tmp_path):
    first = Run(tmp_path / "first", "sigterm", GRADVANE_RUN="first", LIFECYCLE_LOG="none")
    assert first.process.stdout.readline() == "ready\n"
    url = first.endpoint()["url"]
    port = url.rpartition(":")[2]
    second = Run(tmp_path / "second", "return", GRADVANE_RUN="second", GRADVANE_PORT=port, LIFECYCLE_LOG="none")
    assert second.wait() == 0
    first.process.terminate()
    first.wait()
    moved = f"http://[^ ]+:(?!{port}$)[0-9]+"
    assert re.fullmatch(rf"gradvane: run second, rank 0: {moved} \(port {port} is taken\)\n", second.err)
    assert first.err == f"gradvane: run first, rank 0: {url}\n"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("STEP_LOG", "/nonexistent/steps.jsonl", "step_log: /nonexistent/steps.jsonl cannot be written: No such file or directory"),
        ("RUN_DIR", "/proc/gradvane", "run_dir: /proc/gradvane: "),
        ("RECORDER_DIR", "/proc/gradvane", "recorder_dir: /proc/gradvane: "),
    ],
)
def test_what_was_asked_for_and_cannot_be_had_stops_the_set_up(tmp_path, option, value, why):
    run = Run(tmp_path, "return", **{f"GRADVANE_{option}": value})
    assert run.wait() not in (0, None)
    assert why in run.err and "name another" in run.err
    left = [file for file in tmp_path.rglob("*") if file.suffix in (".gvrec", ".lock")]
    assert not left, "a set-up that fails leaves no ring"


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
