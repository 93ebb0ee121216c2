"""Hooks of the program's own that run before an optimizer's step, and change the gradients that it takes."""

import math

import pytest
import torch
from small_net import net
from torch.optim.optimizer import register_optimizer_step_pre_hook

import gradvane
from gradvane._watch import governing


def step(model, optimizer, bad=False):
    optimizer.zero_grad()
    model(torch.randn(4, 6)).square().mean().backward()
    if bad:
        model[0].weight.grad[1, 2] = math.nan
    optimizer.step()


def norm_of(model):
    return float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm())


def kinds():
    return {"of this optimizer": lambda optimizer, hook: optimizer.register_step_pre_hook(hook),
            "of all optimizers": lambda _, hook: register_optimizer_step_pre_hook(hook)}


@pytest.fixture(params=kinds())
def register(request):
    handles = []
    yield lambda optimizer, hook: handles.append(kinds()[request.param](optimizer, hook)) or handles[-1]
    for handle in handles:
        handle.remove()


def halves(optimizer, *_):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad.mul_(0.5)


@pytest.mark.parametrize("options", [{}, {"on_nonfinite": "skip"}], ids=str)
def test_norms_are_of_the_gradients_that_the_step_takes(watching, register, options):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer, **options)
    register(optimizer, halves)
    norms = []
    for _ in range(4):
        step(model, optimizer)
        norms.append(norm_of(model))
    assert [s["grad_norm"] for s in watching.steps()] == pytest.approx(norms, rel=1e-6)


def test_a_step_whose_gradients_a_hook_has_mended_is_taken_and_one_that_it_has_ruined_left_out(watching, register):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)

    def hook(*_):
        grad = model[0].weight.grad
        torch.nan_to_num_(grad) if mends else grad[0].fill_(math.inf)

    watching(model, optimizer, on_nonfinite="skip")
    for number, mends in enumerate((True, False, True), 1):
        handle = register(optimizer, hook)
        before = [p.detach().clone() for p in model.parameters()]
        step(model, optimizer, bad=mends)
        is_taken = not all(torch.equal(p, b) for p, b in zip(model.parameters(), before))
        assert is_taken == mends, f"step {number}"
        handle.remove()
    assert ["skipped" in s for s in watching.steps()] == [False, True, False]


def test_with_the_scaler_and_a_clip_in_the_hook_all_of_it_is_one_step(watching, register):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    watching(model, optimizer)

    def clips(*_):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    register(optimizer, clips)
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(4, 6)).square().mean()).backward()
        norms.append(norm_of(model) / 2.0**10)
        scaler.step(optimizer)
        scaler.update()
    steps = watching.steps()
    assert [s["grad_norm"] for s in steps] == pytest.approx(norms, rel=1e-5)
    assert [s["loss_scale"] for s in steps] == [2.0**10] * 3


class StepsTwice(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        super().step()


def test_a_class_whose_step_calls_its_base_classs_counts_one_step(watching, register):
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)  # so that the base class's step has hooks
    model = net()
    optimizer = StepsTwice(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    calls = []
    register(optimizer, lambda *_: calls.append(1))
    for _ in range(3):
        step(model, optimizer)
    assert [s["step"] for s in watching.steps()] == [1, 2, 3] and len(calls) == 9
    assert not agent._watcher._here.running


class StepsByItsBase(torch.optim.AdamW):
    """Its own step() is wrapped too, and never called."""

    @torch.no_grad()
    def step(self, closure=None):
        raise AssertionError

    def advance(self):
        torch.optim.AdamW.step(self)


@pytest.mark.parametrize("has_hook", [False, True])
def test_a_step_that_is_its_base_classs_is_seen_and_left_out_as_well(watching, register, has_hook):
    torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], 0.1)
    model = net()
    optimizer = StepsByItsBase(model.parameters(), 0.1)
    watching(model, optimizer, on_nonfinite="skip")
    if has_hook:
        register(optimizer, halves)
    norms = []
    for bad in (False, True, False):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        if bad:
            model[0].weight.grad[1, 2] = math.nan
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.advance()
        norms.append(norm_of(model))
        assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before)) == bad
    steps = watching.steps()
    assert [s.get("skipped") for s in steps] == [None, "governor", None]
    assert [s["grad_norm"] for s in steps if "skipped" not in s] == pytest.approx([norms[0], norms[2]], rel=1e-6)


def test_a_hook_that_raises_ends_no_step_and_the_class_is_as_it_was_behind_the_run(watching, register):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    original = governing.step_cell(optimizer).cell_contents
    agent = watching(model, optimizer)

    def refuses(*_):
        raise ArithmeticError

    handle = register(optimizer, refuses)
    with pytest.raises(ArithmeticError):
        step(model, optimizer)
    handle.remove()
    for _ in range(2):
        step(model, optimizer)
    assert [s["step"] for s in watching.steps()] == [1, 2]
    assert governing.step_cell(optimizer).cell_contents is original
    assert agent._watcher.faults == 0


def test_without_hooks_of_its_own_the_class_is_not_touched(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    original = governing.step_cell(optimizer).cell_contents
    watching(model, optimizer)
    step(model, optimizer)
    assert governing.step_cell(optimizer).cell_contents is original
    assert gradvane.is_state_good()
