"""Runs that go on: resumed ones, trainings one after another, models that are gone."""

import gc
import weakref

import pytest
import torch
from small_net import net, one_step


def test_a_resumed_run_goes_on_counting(watching):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(7):
        one_step(model, optimizer)
    state = optimizer.state_dict()
    resumed = torch.optim.AdamW(model.parameters(), 1e-3)
    watching(model, resumed)
    resumed.load_state_dict(state)  # after attach, as scripts do under `gradvane run`
    one_step(model, resumed)
    assert [s["step"] for s in watching.steps()] == [8]


class OnADevice(torch.Tensor):
    """A number that the host has to wait for."""

    waits = 0

    def item(self):
        OnADevice.waits += 1
        return 7.0


def with_steps_on_a_device(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for param in model.parameters():
        optimizer.state[param]["step"] = torch.empty((), device="meta").as_subclass(OnADevice)
    OnADevice.waits = 0
    return optimizer


def test_steps_that_a_device_counts_are_waited_for_at_attach_and_never_in_a_step(watching):
    model = net()
    optimizer = with_steps_on_a_device(model)
    watching(model, optimizer)
    assert OnADevice.waits == 1
    one_step(model, optimizer)
    one_step(model, optimizer)
    assert OnADevice.waits == 1
    assert [s["step"] for s in watching.steps()] == [8, 9]


def test_steps_that_a_device_counts_are_not_waited_for_in_a_capture(watching, monkeypatch):
    model = net()
    optimizer = with_steps_on_a_device(model)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    watching(model, optimizer)
    one_step(model, optimizer)
    assert OnADevice.waits == 0
    assert [s["step"] for s in watching.steps()] == [1]


def test_trainings_one_after_another_count_on(watching):
    """As the folds of a cross-validation do."""
    watching()

    def train(steps):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        return [one_step(model, optimizer)[0] for _ in range(steps)]

    losses = train(5) + train(3) + train(4)
    steps = watching.steps()
    assert [s["run_step"] for s in steps] == list(range(1, 13))
    assert [s["step"] for s in steps] == [*range(1, 6), *range(1, 4), *range(1, 5)]
    assert [s["optimizer"] for s in steps] == 5 * [0] + 3 * [1] + 4 * [2]
    # An optimizer that appears mid-run is known from its first step on, which is after that step's backward pass.
    known = [(s["loss"], loss) for s, loss in zip(steps, losses) if s["run_step"] == 1 or s["step"] > 1]
    assert [loss for loss, _ in known] == pytest.approx([loss for _, loss in known])


def test_a_model_that_is_gone_is_not_kept_alive(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    one_step(model, optimizer)
    weight = weakref.ref(model[0].weight)
    model_gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert model_gone() is None and weight() is None
