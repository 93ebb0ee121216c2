"""Weights that go bad between two reads: what is said of when is never earlier nor later than what is known."""

from __future__ import annotations

import json
import math
import random
import re
import time

import running
import torch
from small_net import net
from torch import nn

import gradvane

FAULTS = 200
EVERY = 7


class WithSpare(nn.Module):
    """Has rows that no input asks for: what is bad in them stays unseen by losses and gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(rows))


def test_two_hundred_bad_weights_are_dated_between_the_last_finite_read_and_the_one_that_found_them(watching):
    rng = random.Random(5)
    model = WithSpare()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen: list = []
    agent = watching(model, optimizer, weight_every=EVERY, ring_slots=8192, detect="nonfinite_weight")
    agent.on_incident(seen.append)
    planted, step = [], 0

    def train(steps: int) -> None:
        nonlocal step
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.tensor([1, 2])).square().mean().backward()
            optimizer.step()
            step += 1

    train(3)
    for _ in range(FAULTS):
        row, column, kind = rng.randrange(5, 20), rng.randrange(4), rng.choice(["nan", "pos_inf", "neg_inf"])
        with torch.no_grad():
            model.table.weight[row, column] = {"nan": math.nan, "pos_inf": math.inf, "neg_inf": -math.inf}[kind]
        planted.append((step, 4 * row + column, kind))  # behind this step's update
        train(rng.randint(2 * EVERY, 3 * EVERY))
        with torch.no_grad():
            model.table.weight.nan_to_num_(0.0, 0.0, 0.0)
        train(rng.randint(2 * EVERY, 3 * EVERY))
    assert agent.flush(60)
    agent.detach()
    opened = [incident for incident in seen if incident.closed_at is None and incident.steps == 1]
    assert len(opened) == FAULTS
    reads = [s["step"] for s in watching.steps() if "weight" in s["nonfinite"]]
    for (behind, element, kind), incident in zip(planted, opened, strict=True):
        (found,) = incident.order
        assert found.last_finite <= behind < found.run_step <= behind + EVERY
        assert found.last_finite == max(read for read in reads if read <= behind), "the last read that found it finite"
        assert found.run_step == min(read for read in reads if read > behind), "the first one that could find it"
        assert incident.first_step == found.run_step
        assert found.blame == gradvane.Blame("weight", kind, "table.weight", element)
        if found.last_finite + 1 < found.run_step:
            assert f"Step {found.run_step}: the weight of table.weight was found" in incident.evidence
            assert f"last read, and finite, at step {found.last_finite}" in incident.evidence
            assert incident.began_in is None, "it may have been bad for steps"
    assert any(incident.order[0].last_finite + EVERY == incident.order[0].run_step for incident in opened)


def test_the_weights_are_read_at_once_when_an_incident_opens(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen: list = []
    agent = watching(model, optimizer, weight_every=1000)
    agent.on_incident(seen.append)
    for step in range(1, 101):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        if step == 40:
            model[0].weight.grad[1, 2] = math.nan
        optimizer.step()
        if step >= 40:
            time.sleep(0.005)
    agent.detach()
    found = {one.blame.site: one for one in seen[-1].order}
    assert found["grad"].run_step == 40
    assert 40 <= found["weight"].run_step < 100 and found["weight"].last_finite == 1
    reads = [s["step"] for s in watching.steps() if "weight" in s["nonfinite"]]
    assert reads == [1, found["weight"].run_step], "once, and then at their turn"


SCRIPT = """
    import math, time, torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    table = torch.nn.Embedding(9, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *table.parameters()], 0.01)
    for step in range(1, 121):
        optimizer.zero_grad()
        (model(torch.randn(8, 4)).square().mean() + table(torch.tensor([1])).square().sum()).backward()
        optimizer.step()
        if step == 60:
            with torch.no_grad():
                table.weight[7, 0] = math.nan
"""


def test_replay_says_between_which_steps_the_weights_went_bad(tmp_path):
    _, done = running.watched(running.write(tmp_path, SCRIPT), cwd=tmp_path)
    assert "was found nan at element 14" in done.stderr and "last read, and finite, at step 50" in done.stderr
    (recording,) = [path for path in (tmp_path / "run").rglob("*.gvrec") if "nonfinite_weight" in path.name]
    told = running.python("-m", "gradvane", "replay", recording, cwd=tmp_path).stdout
    assert re.search(r"The weights were found not finite at step 100, and were last read, and finite, at\s+step 50: a "
                     r"checkpoint from after\s+step 50 may be of no use\.", told), told
    told = running.python("-m", "gradvane", "replay", "--json", recording, cwd=tmp_path).stdout
    assert json.loads(told)["weights"] == {"found_nonfinite": 100, "last_finite": 50}
