"""Faults planted in a real training: each is one incident that names the right parameter, and no other."""

from __future__ import annotations

import json
import math
import random
import urllib.request

import torch
from torch import nn

FAULTS = 500
CLEAN_STEPS = (11, 16)  # after each, more than an incident takes to close
KINDS = {"nan": math.nan, "pos_inf": math.inf, "neg_inf": -math.inf}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Block(nn.Module):
    """Computes in fp32, whatever its parameters are kept in."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, dtype=dtype)
        self.fc = nn.Linear(width, 2 * width, dtype=dtype)
        self.proj = nn.Linear(2 * width, width, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.proj(torch.tanh(self.fc(self.norm(x.to(self.fc.weight.dtype))))).float()
        return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 12)
        self.blocks = nn.ModuleList(Block(12, dtype) for dtype in DTYPES)
        self.head = nn.Linear(12, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def planted(model: Model, rng: random.Random) -> list[dict]:
    """Where each fault goes, decided beforehand."""
    params = dict(model.named_parameters())
    faults, step = [], 5
    for _ in range(FAULTS):
        name = rng.choice(list(params))
        faults.append({"step": step, "param": name, "kind": rng.choice(list(KINDS)),
                       "element": rng.randrange(params[name].numel())})
        step += rng.randint(*CLEAN_STEPS)
    return faults


def train(model: Model, optimizer: torch.optim.Optimizer, faults: list[dict]) -> None:
    """A fault lasts for one step: the weights that it ruins are put back."""
    at = {fault["step"]: fault for fault in faults}
    good = [p.detach().clone() for p in model.parameters()]
    generator = torch.Generator().manual_seed(3)
    for step in range(1, faults[-1]["step"] + CLEAN_STEPS[1]):
        tokens = torch.randint(11, (4,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), tokens).backward()
        fault = at.get(step)
        if fault is not None:
            gradient = model.get_parameter(fault["param"]).grad
            gradient.view(-1)[fault["element"]] = KINDS[fault["kind"]]
        optimizer.step()
        if fault is not None:
            with torch.no_grad():
                for p, value in zip(model.parameters(), good, strict=True):
                    p.copy_(value)


def test_five_hundred_transient_faults_are_five_hundred_incidents_each_with_the_right_blame(watching):
    rng = random.Random(20)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    faults = planted(model, rng)
    seen: list = []
    agent = watching(model, optimizer, port=0, step_log="", ring_slots=8192, detect="default,-agent_cost")
    agent.on_incident(seen.append)
    train(model, optimizer, faults)
    assert agent.flush(60)
    with urllib.request.urlopen(agent.url + "/metrics") as answer:
        metrics = answer.read().decode()
    with urllib.request.urlopen(agent.url + "/api/v1/status") as answer:
        assert json.load(answer)["incidents_total"] == FAULTS
    agent.detach()

    opened = [incident for incident in seen if incident.closed_at is None]
    closed = [incident for incident in seen if incident.closed_at is not None]
    assert [incident.id for incident in opened] == list(range(1, FAULTS + 1))
    assert [incident.id for incident in closed] == [incident.id for incident in opened]
    told = [{"step": incident.first_step, "param": incident.blame.param, "kind": incident.blame.kind,
             "element": incident.blame.element} for incident in opened]
    assert told == faults
    assert {incident.kind for incident in opened} == {"nonfinite_grad"}
    assert {incident.began_in for incident in opened} == {"backward"}
    assert {incident.steps for incident in closed} == {1}
    assert {model.get_parameter(fault["param"]).dtype for fault in faults} == set(DTYPES)
    assert metric(metrics, 'gradvane_incidents_total{', 'class="nonfinite_grad"') == FAULTS
    assert metric(metrics, 'gradvane_incidents_open{', 'class="nonfinite_grad"') == 0


def metric(text: str, start: str, label: str) -> float:
    value, = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(start) and label in line]
    return float(value)


def test_what_broke_first_is_told_when_everything_breaks_after_it(watching):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen: list = []
    agent = watching(model, optimizer, weight_every=1)
    agent.on_incident(seen.append)
    tokens = torch.tensor([1, 2, 3, 4])
    for step in range(1, 41):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), tokens).backward()
        if step == 20:
            model.blocks[2].proj.bias.grad[5] = math.nan
        optimizer.step()
    agent.detach()
    assert {incident.id for incident in seen} == {1}, "one event, one incident"
    last = seen[-1]
    assert (last.kind, last.first_step, last.began_in) == ("nonfinite_grad", 20, "backward")
    assert (last.blame.param, last.blame.element, last.blame.kind) == ("blocks.2.proj.bias", 5, "nan")
    assert [(seen.blame.site, seen.run_step) for seen in last.order] == [("grad", 20), ("weight", 20), ("loss", 21)]
    assert "Step 21: the loss became nan too" in last.evidence


def test_the_micro_step_of_a_bad_loss_is_told_and_a_spike_and_a_divergence_are_told_apart(watching):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen: list = []
    agent = watching(model, optimizer, detect="default,-grad_vanishing")
    agent.on_incident(seen.append)
    rng = random.Random(1)

    def step(scale: float, micro: int = 1, bad: int = 0) -> None:
        optimizer.zero_grad()
        for i in range(1, micro + 1):
            loss = model(torch.ones(1, 4)).square().mean() * 0 + scale * (1 + 0.05 * rng.random())
            if i == bad:
                loss = loss + math.nan  # whose gradient is finite
            (loss / micro).backward()
        optimizer.step()

    for _ in range(30):
        step(1.0)
    step(40.0)
    for _ in range(12):
        step(1.0)
    for _ in range(5):
        step(50.0)
    for _ in range(12):
        step(1.0)
    step(1.0, micro=4, bad=3)
    for _ in range(12):
        step(1.0)
    agent.detach()
    opened = [(incident.kind, incident.first_step) for incident in seen if incident.closed_at is None]
    assert opened == [("loss_spike", 31), ("loss_divergence", 44), ("nonfinite_loss", 61)]
    assert [incident.micro_step for incident in seen if incident.kind == "nonfinite_loss"] == [3, 3]
    closed = [incident.kind for incident in seen if incident.closed_at is not None]
    assert closed == ["loss_spike", "loss_divergence", "nonfinite_loss"]


def test_a_class_that_is_switched_off_is_silent(watching):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen: list = []
    agent = watching(model, optimizer, detect="default,-nonfinite_loss,-nonfinite_grad")
    agent.on_incident(seen.append)
    for _ in range(5):
        optimizer.zero_grad()
        (model(torch.ones(1, 4)).mean() * math.nan).backward()
        optimizer.step()
    agent.detach()
    assert seen == []
