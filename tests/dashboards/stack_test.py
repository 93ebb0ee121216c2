"""make stack: a training with its servers comes up, tells of a fault, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))

from stack.processes import Program, wait_for  # noqa: E402
from stack.servers import Targets, endpoints_in  # noqa: E402

CHAR_GPT = Path(os.environ["GRADVANE_BUILD_DIR"]) / "bin" / "char_gpt"


class Stack:
    """scripts/demo_stack.py in the background, and what it has printed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-B", ROOT / "scripts" / "demo_stack.py", "--windows", "short", "--interval", "1s", "--",
             CHAR_GPT, "--size", "tiny", "--threads", "1", "--steps", "1000000", "--no-eval", "--sample", "0",
             "--fault", "nan@2000,transient"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "GRADVANE_SERVERS": os.environ["GRADVANE_SERVERS_DIR"]})
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.text += line

    def shows(self, pattern: str, seconds: float = 90) -> re.Match[str]:
        until = time.monotonic() + seconds
        while time.monotonic() < until and (self._process.poll() is None or self._reader.is_alive()):
            if found := re.search(pattern, self.text, re.MULTILINE):
                return found
            time.sleep(0.2)
        raise AssertionError(f"no {pattern} in: {self.text}")

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(timeout=60)

    def kill(self) -> None:
        self._process.kill()


@pytest.fixture(scope="module")
def stack():
    running = Stack()
    try:
        yield running
    finally:
        running.kill()


def processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


def test_it_prints_where_everything_is(stack):
    for what, path in (("training", "/metrics"), ("Alertmanager", "/-/ready")):
        url = stack.shows(rf"^{what} +(http://\S+)$")[1]
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            assert answer.status == 200
    url = stack.shows(r"^Prometheus +(http://\S+)/alerts$")[1]
    with urllib.request.urlopen(url + "/api/v1/rules", timeout=10) as answer:
        assert "GradvaneTrainingNonFinite" in answer.read().decode()


def test_a_fault_of_the_training_arrives_through_the_shipped_routes(stack):
    stack.shows(r"^firing +GradvaneTrainingNonFinite +Run char_gpt, 1 rank: .* at step 2000 on rank 0: nan in element \d+ of blocks")


def asked_in_runbooks() -> list[tuple[str, str]]:
    """(path and query of the API, what jq takes of it) of every curl in the runbooks."""
    values = {"STEP_BEFORE": "1", "GROUP": "attention"}
    found = []
    for page in sorted((ROOT / "docs" / "runbooks").glob("*.md")):
        for path, wanted in re.findall(r"^curl -s '?http://INSTANCE(/[^' ]*)'? \| jq '([^']*)'", page.read_text(),
                                       re.MULTILINE):
            for word, value in values.items():
                path = path.replace(word, value)
            found.append((path, wanted))
    return found


def test_what_runbooks_ask_of_the_endpoint_is_answered(stack):
    """A path or a query that does not exist is a 404 or a 400; a key that jq names must be there."""
    url = stack.shows(r"^training +(http://\S+)$")[1]
    asked = asked_in_runbooks()
    assert len(asked) > 20
    for path, wanted in asked:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            answered = json.load(answer)
        here = wanted.split("|")[0] if "|" in wanted else wanted
        for key in re.findall(r"(?:^|, )\.(\w+)", here):
            may_be_absent = key in ("reason", "sites")  # a state without one; no GPU to wait for
            assert key in answered or may_be_absent, f"{path}: {key}"


def test_nothing_is_left_of_it(stack):
    """Last: it ends the stack."""
    folder = stack.shows(r"^logs +(\S+)$")[1]
    assert len(processes_with(folder)) >= 2  # Prometheus and Alertmanager: the control
    assert stack.interrupt() == 130
    assert processes_with(folder) == []
    assert not Path(folder).exists()


def test_a_program_that_does_not_listen_is_killed(tmp_path):
    with Program("deaf", ["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"], tmp_path / "log") as program:
        time.sleep(0.3)
        program.stop(seconds=0.5)
        assert not program.is_alive()


def test_waiting_says_what_the_program_said(tmp_path):
    with Program("sh", ["sh", "-c", "echo it is broken; exit 3"], tmp_path / "log") as program:
        with pytest.raises(TimeoutError, match="status 3 and said: it is broken"):
            wait_for(lambda: False, "better times", 5, program)


def test_targets_are_a_whole_list_at_any_time(tmp_path):
    targets = Targets(tmp_path / "targets.json")
    assert targets.path.read_text() == '[{"targets": []}]'
    targets.write(["b:1", "a:2"])
    assert targets.path.read_text() == '[{"targets": ["a:2", "b:1"]}]'
    assert [path.name for path in tmp_path.iterdir()] == ["targets.json"]


def test_an_endpoint_file_that_is_half_written_is_passed_over(tmp_path):
    (tmp_path / "endpoint.rank0.json").write_text('{"url": "http://127.0.0.1:1"}')
    (tmp_path / "endpoint.rank1.json").write_text('{"url": ')
    os.mkfifo(tmp_path / "endpoint.rank2.json")  # which a plain open would wait for
    (tmp_path / "endpoint.rank3.json").symlink_to("/dev/zero")
    (tmp_path / "endpoint.rank4.json").write_text(json.dumps({"url": "x" * 100_000}))
    assert [endpoint["url"] for endpoint in endpoints_in(tmp_path)] == ["http://127.0.0.1:1"]
