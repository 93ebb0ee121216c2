"""Gradient scalers: overflow is skipped and counted, and pages nobody; everything is reported unscaled."""

import pytest
import torch

import gradvane


def train(watching, *, fused, poisoned=(), steps=6, unscale=False, clip=None,
          clip_with=torch.nn.utils.clip_grad_norm_, scale=2.0**10, **options):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
    agent = watching(model, optimizer, **options)
    truth = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).square().mean()
        scaler.scale(loss).backward()
        if i in poisoned:
            model[0].weight.grad[1, 2] = float("inf")
        grads = [p.grad.double() / scaler.get_scale() for p in model.parameters()]
        truth.append((float(loss), float(torch.stack([g.pow(2).sum() for g in grads]).sum().sqrt()), scaler.get_scale()))
        if unscale or clip:
            scaler.unscale_(optimizer)
        if clip:
            clip_with(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    agent.flush()
    return agent, truth


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_losses_and_norms_are_unscaled_and_the_scale_is_told(watching, fused, unscale):
    _, truth = train(watching, fused=fused, unscale=unscale)
    steps = watching.steps()
    assert [s["step"] for s in steps] == list(range(1, 7))
    for step, (loss, norm, scale) in zip(steps, truth):
        assert step["loss"] == pytest.approx(loss, rel=1e-6)
        assert step["grad_norm"] == pytest.approx(norm, rel=1e-6)
        assert step["loss_scale"] == scale
        assert step["read_at"] == "scaler"


@pytest.mark.parametrize("clip_with", [torch.nn.utils.clip_grad_norm_, gradvane.clip_grad_norm_])
def test_a_clip_of_ours_or_torchs_knows_the_scale(watching, clip_with):
    _, truth = train(watching, fused=False, clip=0.1, clip_with=clip_with, poisoned=(3,))
    for i, (step, (loss, norm, scale)) in enumerate(zip(watching.steps(), truth)):
        assert step["loss_scale"] == scale and step["read_at"] == "clip"
        assert step.get("skipped") == ("amp_overflow" if i == 3 else None)
        if i != 3:
            assert step["grad_norm"] == pytest.approx(norm, rel=1e-6)
            assert step["grad_norm_at_step"] == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_an_overflow_is_a_skipped_step_and_no_alarm(watching, fused, unscale):
    seen = []
    agent, truth = train(watching, fused=fused, unscale=unscale, poisoned=(2,))
    agent.on_incident(seen.append)
    assert agent.status().nonfinite_steps == 0
    steps = watching.steps()
    assert [s.get("skipped") for s in steps] == [None, None, "amp_overflow", None, None, None]
    assert [s["loss_scale"] for s in steps] == [scale for _, _, scale in truth]
    assert seen == []


def test_the_counters_know_an_overflow_for_what_it_is(watching):
    import re
    import urllib.request

    agent, _ = train(watching, fused=False, poisoned=(1, 2), port=0)
    text = urllib.request.urlopen(agent.url + "/metrics").read().decode()

    def value(pattern):
        return sum(float(v) for v in re.findall(rf"^{pattern} (\S+)$", text, re.M))

    assert value(r"gradvane_amp_overflow_steps_total\{[^}]*\}") == 2
    assert value(r'gradvane_skipped_steps_total\{[^}]*reason="amp_overflow"[^}]*\}') == 2
    assert value(r"gradvane_nonfinite_elements_total\{[^}]*\}") == 0
    assert value(r"gradvane_nonfinite_steps_total\{[^}]*\}") == 0
    assert value(r"gradvane_incidents_total\{[^}]*\}") == 0


def test_overflow_that_does_not_heal_becomes_an_incident(watching):
    seen = []
    agent, _ = train(watching, fused=False, poisoned=range(30), steps=30, scale=2.0**30)
    steps = watching.steps()
    assert all(s["skipped"] == "amp_overflow" for s in steps)
    assert agent.status().latest.blame.param == "0.weight"
    assert seen == []


def test_clipping_behind_unscale_is_that_of_the_unscaled_gradients(watching):
    _, truth = train(watching, fused=False, clip=0.01)
    for step, (_, norm, _) in zip(watching.steps(), truth):
        assert step["read_at"] == "clip"
        assert step["grad_norm"] == pytest.approx(norm, rel=1e-6)
        assert step["clip_coefficient"] == pytest.approx(min(1, 0.01 / (norm + 1e-6)), rel=1e-5)


def test_a_clip_of_gradients_that_are_still_scaled_has_no_coefficient(watching):
    import gradvane

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    watching(model, optimizer)
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    gradvane.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    (step,) = watching.steps()
    assert step["grad_norm"] == pytest.approx(2.0), "of four ones"
    assert "clip_coefficient" not in step
    assert step.get("grad_norm_at_step") != pytest.approx(1.0), "it was divided by the scale after that"


def test_a_scaler_that_is_switched_off_is_none(watching):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    watching(model, optimizer)
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    (step,) = watching.steps()
    assert "loss_scale" not in step and step["read_at"] == "optimizer"


@pytest.mark.parametrize("way", ["mean", "sum of two"])
def test_a_loss_that_is_made_of_scaled_ones_is_reported_unscaled_and_nothing_large_is_kept(watching, way):
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        each = model(torch.randn(4, 6)).square()
        if way == "mean":
            losses.append(float(each.mean()))
            scaler.scale(each).mean().backward()
        else:
            losses.append(float(each[0] + each[1]))
            (scaler.scale(each[0]) + scaler.scale(each[1])).backward()
        scaler.step(optimizer)
        scaler.update()
        kept = [one.loss for one in agent._watcher._scaling._here.scaled if one.loss is not None]
        assert all(loss.untyped_storage().nbytes() <= 64 for loss in kept) and len(kept) <= 2
    assert [step["loss"] for step in watching.steps()] == pytest.approx(losses, rel=1e-6)
