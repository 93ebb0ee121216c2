"""What a loop logs: losses and custom metrics."""

import re
import urllib.request

import numpy
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


def test_what_is_logged_behind_a_step_is_that_steps(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for i in range(1, 6):
        loss, _ = one_step(model, optimizer)
        gradvane.log({"accuracy": i, "reduced": torch.tensor(2.0 * i)}, loss=10 * i)
    steps = watching.steps()
    assert [step["user"] for step in steps] == [{"accuracy": i, "reduced": 2.0 * i} for i in range(1, 6)]
    assert [step["loss"] for step in steps] == [10 * i for i in range(1, 6)]


def test_a_data_loader_and_a_backward_pass_show_that_the_next_step_has_begun(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    loader = torch.utils.data.DataLoader(torch.randn(16, 6), batch_size=4)
    for i, batch in enumerate(loader, start=1):
        gradvane.log(batch=i)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        if i > 1:
            gradvane.log(forward=i)
        loss.backward()
        gradvane.log(backward=i)
        optimizer.step()
        gradvane.log(step=i, done=i)
    assert [step["user"] for step in watching.steps()] == [
        {"batch": i, "backward": i, "done": i} | ({"forward": i} if i > 1 else {}) for i in range(1, 5)
    ]


def test_a_metric_that_was_logged_before_the_first_step_stays_with_the_step_in_progress(watching):
    """Nothing but its backward pass shows the next step of this loop, and that comes later."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for i in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).square().mean()
        if i % 2 == 0:
            gradvane.log(now=i, loss=loss)
        loss.backward()
        optimizer.step()
        gradvane.log(then=i)
    steps = watching.steps()
    assert [step["user"] for step in steps] == [{"then": i} | ({"now": i} if i % 2 == 0 else {}) for i in range(6)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("make", [float, torch.tensor, lambda x: torch.tensor([x], dtype=torch.bfloat16)],
                         ids=["number", "tensor", "bfloat16"])
def test_a_metric_that_is_not_finite_is_in_the_step_log_and_kept_out_of_its_gauge(watching, make, value):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer, port=0, linger_seconds=0)
    for logged in (0.5, value):
        gradvane.log(accuracy=make(logged), good=1)
        one_step(model, optimizer)
    agent.flush()
    text = urllib.request.urlopen(agent.url + "/metrics").read().decode()
    gauge, = re.findall(r'^gradvane_user_metric\{[^}]*name="accuracy"[^}]*\} (\S+)$', text, re.M)
    assert float(gauge) == 0.5
    assert [step["user"] for step in watching.steps()] == [
        {"accuracy": 0.5, "good": 1.0}, {"accuracy": str(value), "good": 1.0}]


@pytest.mark.parametrize("value", [torch.tensor(7), torch.tensor([7], dtype=torch.uint8), 7, numpy.float32(7), numpy.int64(7)],
                         ids=lambda value: type(value).__name__)
def test_whole_numbers_and_numpys_are_numbers_too(watching, value):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    gradvane.log(correct=value, best=torch.tensor(True))
    gradvane.count(tokens=value, samples=2.0)
    one_step(model, optimizer)
    (step,) = watching.steps()
    assert step["user"] == {"correct": 7.0, "best": 1.0}
    assert (step["tokens"], step["samples"]) == (7, 2)


class Raises:
    def __float__(self):
        raise KeyError

    __int__ = __str__ = __float__


def test_a_loss_may_be_a_whole_number(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for value in (torch.tensor(3), 3, torch.tensor(True)):
        gradvane.log(loss=value)
        one_step(model, optimizer)
    assert [step["loss"] for step in watching.steps()] == [3, 3, 1]


def test_what_is_no_number_is_left_out_and_the_first_one_named(watching, caplog):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    gradvane.log({"name": "resnet", 3: 4, "many": torch.ones(3), "none": torch.ones(0), "list": [1], "complex": 1j}, good=1)
    gradvane.log(["accuracy"])
    gradvane.log(loss="low", huge=10**400)
    gradvane.count(tokens="many", samples=10**30)
    gradvane.count(tokens=torch.ones(3), samples=-(10**30))
    gradvane.log({Raises(): 1}, raises=Raises(), sparse=torch.ones(1).to_sparse(), meta=torch.ones(1, device="meta"))
    gradvane.log(loss=torch.ones(1, dtype=torch.complex64))
    loss, _ = one_step(model, optimizer)
    (step,) = watching.steps()
    assert step["user"] == {"3": 4.0, "good": 1.0} and step["loss"] == pytest.approx(float(loss))
    told = [record.getMessage() for record in caplog.records if "number" in record.getMessage()]
    assert told == ["name is no number but of type str: it is left out, and so is what else is none"]


def test_a_step_does_not_wait_for_a_value_that_comes_much_later(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    one_step(model, optimizer)
    agent.flush(10)
    gradvane.log(late=1)
    one_step(model, optimizer)
    gradvane.log(late=2)
    first, second = watching.steps()
    assert "late" not in first.get("user", {})
    assert second["user"] == {"late": 2}


def test_a_name_that_comes_after_the_gradients_were_read_is_in_that_step(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for i in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        gradvane.log({f"new{i}": i})
        optimizer.step()
    assert [step["user"] for step in watching.steps()] == [{f"new{i}": i} for i in range(3)]
