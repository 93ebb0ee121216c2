"""The files of runs: several processes of one name, runs that end well and badly, and what is in the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import running

# Says that it trains, goes on until a line comes, and ends as the line says.
TRAINING = """
    import logging, os, signal, sys, urllib.request
    import torch
    import gradvane

    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    agent = gradvane.attach(model, optimizer, run="train", port=0, linger_seconds=0, detect="nonfinite_grad",
                            **eval(sys.argv[1]))

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        agent.flush()

    steps(20)
    print("ready", flush=True)
    for line in sys.stdin:
        how = line.strip()
        steps(20)
        if how == "failures":
            text = urllib.request.urlopen(agent.url + "/metrics").read().decode()
            print([line for line in text.splitlines() if "export_failures_total{" in line and not line.endswith(" 0")],
                  flush=True)
        if how == "bad":
            hooks = [parameter.register_hook(lambda grad: grad * float("nan")) for parameter in model.parameters()]
            before = [parameter.detach().clone() for parameter in model.parameters()]
            steps(1)
            for hook in hooks:
                hook.remove()
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), before):
                    parameter.copy_(value)
            steps(200)  # the incident is over
            print("bad", flush=True)
        if how == "raise":
            raise RuntimeError("no more data")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "end":
            break
"""
LIMIT = 120  # seconds, which no wait here should come near


class Training:
    """A process that trains until it is told how to end."""

    def __init__(self, folder: Path, temporary: Path, **options: object) -> None:
        script = running.write(folder, TRAINING)
        self.process = running.start(script, repr(options), cwd=folder, TMPDIR=str(temporary))

    def wait_until_it_trains(self) -> Training:
        assert self.read() == "ready", self.process.stderr.read()
        return self

    def read(self) -> str:
        return self.process.stdout.readline().strip()

    def say(self, how: str) -> None:
        self.process.stdin.write(how + "\n")
        self.process.stdin.flush()

    def ask(self, what: str) -> str:
        self.say(what)
        return self.read()

    def end(self, how: str = "end") -> str:
        """What it wrote to its standard error."""
        _, said = self.process.communicate(how + "\n", timeout=LIMIT)
        expected = {"end": 0, "raise": 1, "kill": -signal.SIGKILL}[how]
        assert self.process.returncode == expected, said
        return said


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o1777)
    return folder


def usual(temporary: Path) -> Path:
    return temporary / f"gradvane-{os.geteuid()}" / "train"


def directory_in(said: str) -> Path:
    return Path(re.search(r"run directory (\S+)", said).group(1))


def rings(temporary: Path) -> list[Path]:
    return sorted(temporary.rglob("*.ring*.gvrec"))


def test_three_processes_of_one_name_have_files_of_their_own(tmp_path, temporary):
    trainings = [Training(tmp_path, temporary, recorder_kept=1).wait_until_it_trains() for _ in range(3)]
    folders = [path.parent for path in rings(temporary)]
    assert len(set(folders)) == 3, "a ring each"
    inodes = {path.stat().st_ino for path in rings(temporary)}
    assert [one.ask("bad") for one in trainings] == 3 * ["bad"]
    time.sleep(2.5)  # as long as it took them to move each other's ring aside, twice over
    assert [one.ask("failures") for one in trainings] == 3 * ["[]"], "nothing fails"
    assert {path.stat().st_ino for path in rings(temporary)} == inodes, "no ring was made again"
    for folder in folders:
        assert len(list(folder.glob("*nonfinite*.gvrec"))) == 1, "and nobody removes another's recording"
        assert json.loads((folder / "endpoint.rank0.json").read_text())["state"] == "running"
    said = [one.end() for one in trainings]
    assert {directory_in(text) for text in said} == set(folders), "each says which it took"
    assert sum("another process uses" in text for text in said) == 2
    assert rings(temporary) == [], "they ended well"
    again = Training(tmp_path, temporary).wait_until_it_trains()
    assert directory_in(again.end()) == usual(temporary), "the name is free again"


def test_a_killed_run_leaves_its_ring_and_a_finished_one_none(tmp_path, temporary):
    Training(tmp_path, temporary).wait_until_it_trains().end("kill")
    assert [path.name for path in rings(temporary)] == ["train.rank0.ring.gvrec"]
    Training(tmp_path, temporary).wait_until_it_trains().end("raise")
    assert [path.name for path in rings(temporary)] == ["train.rank0.ring.gvrec", "train.rank0.ring.previous.gvrec"]
    assert json.loads((usual(temporary) / "endpoint.rank0.json").read_text())["state"] == "failed"
    Training(tmp_path, temporary).wait_until_it_trains().end()
    assert rings(temporary) == []
    assert {path.name for path in usual(temporary).iterdir()} == {
        "endpoint.rank0.json", *(path.name for path in usual(temporary).glob("*.failed.gvrec"))}


def test_every_file_is_private(tmp_path, temporary):
    training = Training(tmp_path, temporary).wait_until_it_trains()
    training.ask("bad")
    files = [path for path in usual(temporary).iterdir()]
    assert len(files) == 4, files  # endpoint, lock, ring, recording
    assert {path.stat().st_mode & 0o7777 for path in files} == {0o600}
    training.end()


def test_a_pipe_in_the_place_of_every_file_holds_up_nothing(tmp_path, temporary):
    """Each of these was opened without a look at it, or may be one day."""
    usual(temporary).mkdir(parents=True, mode=0o700)
    usual(temporary).parent.chmod(0o700)
    for name in ("endpoint.rank0.json", "endpoint.rank1.json", "train.rank0.ring.gvrec", "train.rank0.lock",
                 "train.rank0.ring.previous.gvrec", "train.rank0.step21.nonfinite_grad.gvrec"):
        os.mkfifo(usual(temporary) / name)
    training = Training(tmp_path, temporary).wait_until_it_trains()
    training.ask("bad")
    (usual(temporary) / "endpoint.rank0.json").unlink()
    os.mkfifo(usual(temporary) / "endpoint.rank0.json")
    training.end()
    assert json.loads((usual(temporary) / "endpoint.rank0.json").read_text())["state"] == "finished"
    os.mkfifo(usual(temporary) / "rank0.lock")
    said = Training(tmp_path, temporary).wait_until_it_trains().end()
    assert directory_in(said).name.startswith("train.")


def test_a_directory_that_others_may_write_to_is_left_alone(tmp_path, temporary):
    taken = usual(temporary).parent
    taken.mkdir()
    taken.chmod(0o777)
    training = Training(tmp_path, temporary).wait_until_it_trains()
    training.ask("bad")
    said = training.end()
    assert "can be written to by other users" in said
    assert directory_in(said).parent.parent == temporary
    assert directory_in(said).parent.name.startswith(taken.name + ".")
    assert list(directory_in(said).glob("*.gvrec")), "the recording went with it"
    assert list(taken.iterdir()) == []


@pytest.mark.parametrize("place", ["/proc", "/nonexistent/place"])
def test_a_temporary_directory_that_is_of_no_use_costs_files_alone(tmp_path, place):
    training = Training(tmp_path, Path(place)).wait_until_it_trains()
    training.ask("bad")
    said = training.end()
    if place == "/proc":
        assert "run directory none, no files are written (" in said
    else:
        folder = directory_in(said)
        assert str(folder).startswith("/tmp/gradvane-")
        shutil.rmtree(folder.parent)


def test_a_directory_that_vanishes_comes_back_and_is_counted_once(tmp_path, temporary):
    training = Training(tmp_path, temporary).wait_until_it_trains()
    shutil.rmtree(usual(temporary).parent)
    time.sleep(1.5)  # the ring is tried again after a second
    training.ask("failures")
    assert training.ask("failures").count("export_failures_total") == 1
    assert training.ask("failures").endswith("flight_recorder\"} 1']")
    training.ask("bad")
    assert list(usual(temporary).glob("*nonfinite*.gvrec"))
    training.end()
    assert json.loads((usual(temporary) / "endpoint.rank0.json").read_text())["state"] == "finished"


def test_processes_that_share_a_step_log_have_one_each(tmp_path):
    """As in a Hogwild training: one model, several processes, no ranks."""
    script = running.write(tmp_path, """
        import os, sys, time
        import torch
        import torch.multiprocessing as mp

        def train(rank, folder):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], 0.1)
            for _ in range(5):
                optimizer.zero_grad()
                optimizer.param_groups[0]["params"][0].sum().backward()
                optimizer.step()
            open(os.path.join(folder, str(rank)), "w").close()
            until = time.monotonic() + 60
            while len(os.listdir(folder)) < 3 and time.monotonic() < until:
                time.sleep(0.01)

        if __name__ == "__main__":
            os.mkdir("here")
            mp.spawn(train, args=(os.path.abspath("here"),), nprocs=3)
        """)
    _, done = running.watched(script, cwd=tmp_path)
    logs = sorted(tmp_path.glob("steps*.jsonl"))
    assert len(logs) == 3 and logs[-1].name == "steps.jsonl"
    assert [[step["step"] for step in running.steps_in(log)] for log in logs] == 3 * [[1, 2, 3, 4, 5]]
    assert done.stderr.count("step log: another process writes") == 2
    for log in logs[:-1]:
        assert str(log) in done.stderr


def test_a_step_log_to_standard_output_ends_with_its_reader(tmp_path):
    """A pipe that we could read from as well would never break, and the program would hang on its own output."""
    script = running.write(tmp_path, """
        import sys
        import torch
        parameter = torch.nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([parameter], 0.1)
        for step in range(2000):
            optimizer.zero_grad()
            parameter.sum().backward()
            optimizer.step()
            print("x" * 200, flush=True)
        """)
    process = running.start("-m", "gradvane", "run", "--step-log", "/dev/stdout", "--run-dir", tmp_path / "run", script, cwd=tmp_path)
    first = process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=LIMIT)
    said = process.stderr.read()
    process.stderr.close()
    assert first and "BrokenPipeError" in said
    assert process.returncode != 0, "as it does without us"
