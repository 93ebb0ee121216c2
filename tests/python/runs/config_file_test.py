"""A configuration file that changes while the run lasts."""

import json
import logging
import os
import time
import urllib.request

import pytest
import running
import torch
from small_net import net

NO_NONFINITE = "default,-nonfinite_loss,-nonfinite_grad,-nonfinite_weight"
PATIENCE = 60
"""seconds"""


def settings(agent) -> dict[str, dict]:
    with urllib.request.urlopen(agent.url + "/api/v1/status", timeout=10) as answer:
        return {setting["key"]: setting for setting in json.load(answer)["process"]["settings"]}


def until(condition, step) -> None:
    """Trains on until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        step()
        time.sleep(0.02)


@pytest.fixture
def training(watching, tmp_path, caplog):
    caplog.set_level(logging.INFO, "gradvane")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    config = tmp_path / "gradvane.yaml"
    config.write_text("weight_every: 0\n")
    agent = watching(model, optimizer, config=config, port=0, weight_every=None)

    def step(factor: float = 1.0) -> None:
        optimizer.zero_grad()
        (model(torch.ones(2, 6)).square().mean() * factor).backward()
        optimizer.step()

    return agent, step, config


def test_thresholds_detectors_and_how_often_weights_are_read_follow_the_file(training, watching):
    agent, step, config = training
    until(lambda: agent.status().state == "running", step)
    assert "since" not in settings(agent)["weight_every"]
    before = time.time()
    running.replace(config, f"weight_every: 1\ndetect: {NO_NONFINITE}\nmode: immediate\n")
    until(lambda: settings(agent)["weight_every"]["value"] == "1", step)
    changed = settings(agent)
    assert before - 5 < changed["weight_every"]["since"] <= time.time()
    assert (changed["detect"]["value"], changed["mode"]["value"]) == (NO_NONFINITE, "lagged")
    for _ in range(3):
        step()
    step(float("nan"))
    steps = watching.steps()
    assert not agent.incidents, "those classes are judged no more"
    assert "weight_norm" not in steps[0] and all("weight_norm" in each for each in steps[-4:-1])
    assert steps[-1]["nonfinite"]["grad"]["nan"] > 0


def test_a_line_says_what_changed_and_what_could_not(training, caplog):
    agent, step, config = training
    running.replace(config, "weight_every: 2\nport: 1\n")
    until(lambda: "weight_every is 2 from now on; it was 0" in caplog.text, step)
    assert caplog.text.count("port cannot change while the run lasts") == 1
    running.replace(config, "weight_every: often\n")
    until(lambda: "all options stay as they are" in caplog.text, step)
    assert settings(agent)["weight_every"]["value"] == "2"
    os.remove(config)
    until(lambda: "is gone" in caplog.text, step)
    assert agent.status().state == "running"
