"""What a loop logs: losses and custom metrics."""

import pytest
import torch
from small_net import net, one_step

import gradvane


def test_log_outdoes_what_backward_shows_and_takes_tensors(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    optimizer.zero_grad()
    loss = model(torch.randn(4, 6)).square().mean()
    (1000 * loss).backward()
    gradvane.log(loss=loss, accuracy=torch.tensor(0.5), lr_scale=2)
    optimizer.step()
    gradvane.log(loss=loss)  # behind the step, as people do
    optimizer.zero_grad()
    second = model(torch.randn(4, 6)).square().mean()
    second.backward()
    optimizer.step()
    steps = watching.steps()
    assert steps[0]["loss"] == pytest.approx(float(loss.detach()))
    assert steps[0]["user"] == {"accuracy": 0.5, "lr_scale": 2.0}


def test_metrics_may_be_passed_as_a_mapping_as_other_loggers_take_them(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    gradvane.log({"train/accuracy": torch.tensor(0.5), "loss": 3.0}, lr_scale=2)
    one_step(model, optimizer)
    agent.log({"train/accuracy": 0.25}, loss=4.0)
    one_step(model, optimizer)
    first, second = watching.steps()
    assert first["user"] == {"train/accuracy": 0.5, "lr_scale": 2.0} and first["loss"] == 3.0
    assert second["user"]["train/accuracy"] == 0.25 and second["loss"] == 4.0


def test_256_metrics_are_kept_and_the_first_one_more_is_named_once(watching, caplog):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for _ in range(2):
        gradvane.log({f"m{i}": i for i in range(258)})
        one_step(model, optimizer)
    for step in watching.steps():
        assert step["user"] == {f"m{i}": float(i) for i in range(256)}
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["there are 256 custom metrics already: m256 and other new names are left out"]
