"""Runs that go on: resumed ones, trainings one after another, models that are gone."""

import gc
import weakref

import pytest
import torch
from small_net import net, one_step

from gradvane import clip_grad_norm_


@pytest.mark.parametrize("options", [{}, {"on_nonfinite": "skip"}], ids=str)
def test_switched_off_it_lets_go_of_optimizers_as_ever(watching, options):
    agent = watching(None, None, enabled=False, **options)
    for _ in range(2):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        agent.watch(model, optimizer)
        one_step(model, optimizer)
        assert agent.grad_norm() is None
        clip_grad_norm_(model.parameters(), 1.0)
        del model, optimizer
        gc.collect()
    assert agent._watcher.faults == 0


def test_the_step_log_stays_in_the_folder_that_the_run_began_in(watching, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer, step_log="steps.jsonl", step_log_max_bytes=4096)
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other/steps.jsonl").write_text("the program's\n")
    for _ in range(40):
        one_step(model, optimizer)
    agent.detach()
    assert (tmp_path / "steps.jsonl.1").exists(), "the control: it was rotated"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["steps.jsonl"]
    assert (tmp_path / "other/steps.jsonl").read_text() == "the program's\n"


@pytest.mark.parametrize("default", [torch.float16, torch.float32])
@pytest.mark.parametrize("loss", [70000.0, 123456789.0, 1e39, 5])
def test_a_loss_that_is_a_number_is_kept_as_it_is(watching, default, loss):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        agent.log(loss=loss)
    finally:
        torch.set_default_dtype(before)
    one_step(model, optimizer)
    assert watching.steps()[0]["loss"] == loss


def test_a_callback_that_leaves_by_an_exit_is_not_the_last_one(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer, cooldown_seconds=0)
    seen = []

    def leaves(incident):
        seen.append(incident)
        raise SystemExit(3)

    agent.on_incident(leaves)
    for _ in range(2):
        one_step(model, optimizer)
        model(torch.full((4, 6), float("nan"))).square().mean().backward()
        optimizer.zero_grad()
    agent.detach()
    assert seen and agent._teller.is_alive() is False and len(agent.incidents) == len(seen)


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
