"""What a training leaves behind when it ends badly, read by `gradvane replay` with the process long dead."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import running

TRAINING = '''
import math, os, signal, sys, time
import torch
import gradvane

how = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
agent = gradvane.attach(model, optimizer, run="broken", run_dir="run", port=-1, recorder_signal="usr1", weight_every=1)
for step in range(1, 61):
    inputs = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
    if step == 40 and how != "signal":
        model[2].weight.grad[0, 11] = math.nan
    gradvane.log(batch=1000 + step)
    if step % 10 == 0:
        gradvane.log(seldom=math.nan if step % 20 == 0 else 2.0)
    optimizer.step()
    if step == 50:
        agent.flush()
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise RuntimeError("no more data")
        if how == "exit":
            sys.exit(3)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.5)
'''


def train(folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(TRAINING)
    environment = {**os.environ, "PYTHONPATH": str(running.PACKAGE), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, script, how], cwd=folder, env=environment, capture_output=True, text=True,
                          check=False, timeout=120)


def replay(file: Path, *options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(running.PACKAGE)}
    return subprocess.run([sys.executable, "-m", "gradvane", "replay", *options, file], env=environment,
                          capture_output=True, text=True, check=True, timeout=60).stdout


def recordings(folder: Path) -> dict[str, Path]:
    """By the word that each is named by."""
    return {file.name.split(".")[-2]: file for file in sorted((folder / "run").glob("*.gvrec"))}


@pytest.mark.parametrize(("how", "status"), [("kill", -signal.SIGKILL), ("raise", 1), ("exit", 3)])
def test_what_broke_first_is_read_from_what_is_left(tmp_path, how, status):
    assert train(tmp_path, how).returncode == status, "a recording does not change how a process ends"
    files = recordings(tmp_path)
    assert {"ring", "nonfinite_grad"} <= set(files)
    for word in ("ring", "nonfinite_grad"):
        story = json.loads(replay(files[word], "--json"))
        broke = story["incident"]
        assert (broke["class"], broke["first_step"], broke["param"]) == ("nonfinite_grad", 40, "2.weight")
        assert (broke["element"], broke["kind"], broke["began_in"]) == (11, "nan", "backward")
        # A killed process leaves the incident's own file as it was when the incident opened.
        last = 40 if how == "kill" and word != "ring" else 50
        order = [("grad", 40), ("weight", 40), ("loss", 41)]
        assert [(seen["site"], seen["run_step"]) for seen in broke["order"]] == [at for at in order if at[1] <= last]
        assert story["steps"]["last"] == last
        if how != "kill":
            assert (broke["last_step"], broke["steps"]) == (50, 11), "with all the steps it had"
        assert "1 NaN in the gradients, first in 2.weight, element 11" in replay(files[word])
    assert ("killed" in replay(files["ring"])) == (how == "kill")


def test_a_rollback_is_part_of_the_story(tmp_path):
    script = running.write(tmp_path, """
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(1, 41):
            optimizer.zero_grad()
            (model(torch.randn(8, 4)).square().mean() * (float("nan") if step == 28 else 1.0)).backward()
            optimizer.step()
        """)
    running.python("-m", "gradvane", "run", "--on-nonfinite", "rollback", "--snapshot-every", "5", script, cwd=tmp_path,
                   GRADVANE_RUN_DIR=str(tmp_path / "run"), GRADVANE_PORT="-1")
    (file,) = (tmp_path / "run").glob("*.step28.nonfinite_loss.gvrec")
    told = " ".join(replay(file).split())
    assert re.search(r"Step 28: the training went back to the state after step 26 \(snapshot 6, \S+ s old\)\. The reason: step 28:"
                     r" the loss is not finite\. Lost: 2 steps\.", told), told
    story = json.loads(replay(file, "--json"))
    assert [(one["class"], one["first_step"]) for one in story["other_incidents"]] == [("rollback", 28)]
    assert (story["after"]["steps"], story["after"]["nonfinite"]) == (12, 0)


def test_a_signal_asks_for_a_recording_and_a_run_that_is_well_leaves_no_other(tmp_path):
    assert train(tmp_path, "signal").returncode == 0
    files = recordings(tmp_path)
    assert "signal" in files
    assert set(files) == {"signal"}, "and no ring: that is for runs that are killed"
    steps = [json.loads(line) for line in replay(files["signal"], "--steps").splitlines()]
    assert [step["run_step"] for step in steps] == list(range(1, 61)), "up to the signal, and what came after"
    assert steps[6]["user"] == {"batch": 1007}
    assert [steps[at]["user"]["seldom"] for at in (9, 19, 29)] == [2.0, "nan", 2.0]
    assert all("first_nonfinite" not in step for step in steps)


def test_a_signal_is_answered_also_where_the_file_of_an_open_incident_is_extended(tmp_path):
    script = running.write(tmp_path, """
        import os, signal, time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        for step in range(1, 61):
            optimizer.zero_grad()
            (model(torch.ones(2, 4)).sum() * (float("nan") if step >= 10 else 1.0)).backward()
            optimizer.step()
            time.sleep(0.02)
            if step == 40:
                os.kill(os.getpid(), signal.SIGUSR1)
        """)
    _, done = running.watched(script, cwd=tmp_path, GRADVANE_RECORDER_SIGNAL="usr1")
    told = [line for line in done.stderr.splitlines() if line.startswith("gradvane: recording: ")]
    assert len(told) == 2 and len(set(told)) == 1, done.stderr
