"""What a program gives to torch, or raises, comes through the hooks as it was."""

import gc
import signal
import sys
import time

import pytest
import torch
from small_net import net
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(autouse=True)
def no_optimizer_is_left():
    """What was raised here may hold optimizers in cycles, which tests behind these would find."""
    yield
    gc.collect()


def pieces():
    torch.manual_seed(3)
    model = net()
    return model, torch.optim.SGD(model.parameters(), 0.1)


class Counting:
    """A closure that counts its calls, and has more to it than being called."""

    def __init__(self, model, optimizer):
        self.calls = 0
        self._model, self._optimizer = model, optimizer

    def __call__(self):
        self.calls += 1
        self._optimizer.zero_grad()
        loss = self._model(torch.ones(4, 6)).square().mean()
        loss.backward()
        return loss


class AsksItsClosure(torch.optim.SGD):
    """Its step depends on what the closure has counted."""

    @torch.no_grad()
    def step(self, closure):
        assert isinstance(closure, Counting)
        with torch.enable_grad():
            loss = closure()
        self.param_groups[0]["lr"] = 0.1 * closure.calls
        super().step()
        return loss


class StepsWithAModel(torch.optim.SGD):
    def step(self, model):
        for param in model.parameters():
            param.grad.clamp_(-0.01, 0.01)
        super().step()


def test_a_closure_that_is_more_than_a_function_is_handed_on_itself(watching):
    results = []
    for is_watched in (False, True):
        model, _ = pieces()
        optimizer = AsksItsClosure(model.parameters(), 0.1)
        if is_watched:
            watching(model, optimizer)
        closure = Counting(model, optimizer)
        losses = [float(optimizer.step(closure).detach()) for _ in range(3)]
        results.append((losses, [param.detach().clone() for param in model.parameters()]))
    (plain, weights), (watched, same) = results
    assert watched == plain and all(map(torch.equal, weights, same))
    assert [step["loss"] for step in watching.steps()] == pytest.approx(plain)


def test_a_function_that_keeps_its_count_on_itself_is_handed_on_itself(watching):
    model, optimizer = pieces()
    watching(model, optimizer)
    given = []
    optimizer.register_step_pre_hook(lambda _, args, kwargs: given.append(args[1]))

    def closure():
        closure.calls += 1
        optimizer.zero_grad()
        loss = model(torch.ones(4, 6)).square().mean()
        loss.backward()
        return loss

    closure.calls = 0
    optimizer.step(closure)
    assert given == [closure] and closure.calls == 1
    assert len(watching.steps()) == 1


def test_what_a_decorated_closure_finds_is_seen_as_before(watching):
    """A decorator leaves the function within on the one that it makes: that alone is nothing an optimizer asks for."""
    model, _ = pieces()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    watching(model, optimizer)

    @torch.enable_grad()
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 6)).square().mean() * float("nan")
        loss.backward()
        return loss

    given = []
    optimizer.register_step_pre_hook(lambda _, args, kwargs: given.append(args[1]))
    optimizer.step(closure)
    assert given != [closure], "no one would see its evaluations"
    (step,) = watching.steps()
    assert step["first_nonfinite"]


def test_an_optimizer_whose_step_takes_a_model_gets_the_model(watching):
    model, _ = pieces()
    optimizer = StepsWithAModel(model.parameters(), 0.1)
    watching(model, optimizer)
    model(torch.ones(4, 6)).square().mean().backward()
    optimizer.step(model)
    (step,) = watching.steps()
    assert step["grad_norm"] > 0


def test_parameters_can_be_swapped_while_they_are_watched(watching):
    model, optimizer = pieces()
    agent = watching(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 6)).square().mean().backward()
        optimizer.step()
    optimizer.zero_grad()
    for param in list(model.parameters()):
        torch.utils.swap_tensors(param, torch.nn.Parameter(torch.full_like(param, 0.5)))
    model(torch.ones(4, 6)).square().mean().backward()
    optimizer.step()
    agent.flush()
    assert len(watching.steps()) == 3


class TooLate(Exception):
    pass


def test_what_a_handler_of_signals_raises_within_a_hook_reaches_the_program(watching, monkeypatch):
    """A handler runs wherever the main thread is: with steps this small, that is within a hook every few times. Within a
    callback of a weak reference, Python itself drops what it raises."""
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: dropped.append(str(getattr(found.object, "__module__", ""))))
    model, optimizer = pieces()
    agent = watching(model, optimizer)

    def too_late(*_):
        raise TooLate

    before = signal.signal(signal.SIGALRM, too_late)
    reached = 0
    try:
        for _ in range(100):
            began = time.monotonic()
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.003)
                while time.monotonic() - began < 2:
                    optimizer.zero_grad()
                    model(torch.ones(1, 6)).sum().backward()
                    optimizer.step()
            except TooLate:
                reached += 1
            torch.set_grad_enabled(True)  # torch may be interrupted where it has switched that off
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert reached + len(dropped) == 100
    assert not any("gradvane" in module for module in dropped)
    assert agent._watcher.faults == 0


def test_after_an_interrupt_at_the_start_of_a_pass_the_next_passes_are_seen(watching, monkeypatch):
    model, optimizer = pieces()
    agent = watching(model, optimizer)
    losses = []
    for i in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 6)).square().mean()
        if i == 1:
            with monkeypatch.context() as patch:
                patch.setattr(agent._watcher, "_enter_backward", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
                with pytest.raises(KeyboardInterrupt):
                    loss.backward()
            continue
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
    assert [step["loss"] for step in watching.steps()] == pytest.approx(losses)


@pytest.mark.parametrize("way", ["its closure raises", "a hook raises"])
def test_the_step_after_one_that_failed_has_its_loss(watching, way):
    model, optimizer = pieces()
    watching(model, optimizer)

    def fails(*_):
        raise TooLate

    if way == "its closure raises":
        with pytest.raises(TooLate):
            optimizer.step(fails)
    else:
        handle = optimizer.register_step_pre_hook(fails)
        model(torch.ones(4, 6)).square().mean().backward()
        with pytest.raises(TooLate):
            optimizer.step()
        handle.remove()
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 6)).square().mean()
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
    taken = [step for step in watching.steps() if not step.get("skipped")]
    assert [step["loss"] for step in taken][-2:] == pytest.approx(losses)


class StepsTwice(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        super().step()


def test_a_step_that_is_made_of_its_base_classs_is_one_step(watching):
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)  # so that the base class's step has hooks
    model, _ = pieces()
    optimizer = StepsTwice(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(4, 6)).square().mean().backward()
        optimizer.step()
    assert [step["step"] for step in watching.steps()] == [1, 2, 3, 4, 5]
    assert agent._watcher.faults == 0 and not agent._watcher._here.running


class Calls(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function.__name__)  # backward() itself is another function while it is watched
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("mode", [Calls, Operators])
def test_modes_see_the_calls_of_a_backward_pass_and_no_others(watching, mode, several):
    seen = []
    for is_watched in (False, True):
        model, optimizer = pieces()
        if is_watched:
            watching(model, optimizer)
        first, second = model(torch.ones(4, 6)).mean(), model(torch.zeros(4, 6)).mean()
        with mode() as looks_on:
            torch.autograd.backward([first, second] if several else first)
        seen.append(looks_on.seen)
    assert seen[0] == seen[1] and seen[0]


def test_an_interrupt_as_a_pass_begins_leaves_no_mark(watching, monkeypatch):
    model, optimizer = pieces()
    agent = watching(model, optimizer)

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(agent._watcher.keeper, "backward_begins", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(4, 6)).mean().backward()
    assert agent._watcher._here.backward_depth == 0


class Growing(torch.nn.Module):
    """Its head gets its shape in the first forward pass; the next one is there before it is used."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(6, 4), torch.nn.LazyLinear(2)
        self.next = torch.nn.LazyLinear(3)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("when", ["before", "after"])
def test_layers_without_a_shape_are_watched_from_when_they_have_one(watching, when):
    torch.manual_seed(0)
    model = Growing()
    optimizer = torch.optim.SGD([*model.body.parameters(), *model.head.parameters()], 0.1)
    if when == "after":
        model(torch.ones(4, 6))
    agent = watching(model, optimizer)
    norms = []
    for i in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in optimizer.param_groups[0]["params"]])))
        optimizer.step()
        if i == 2:
            model.head, model.next = torch.nn.Linear(4, 3), torch.nn.LazyLinear(5)
            optimizer.param_groups[0]["params"][2:] = list(model.head.parameters())
    assert [step["grad_norm"] for step in watching.steps()] == pytest.approx(norms, rel=1e-6)
    assert agent._watcher.faults == 0


def test_plans_that_cannot_be_made_leave_the_old_ones_whole(watching, monkeypatch):
    """Lists of two states would be read beyond their end: this crashed."""
    torch.manual_seed(0)
    model = Growing()
    model(torch.ones(4, 6))
    body, head = (torch.optim.SGD(part.parameters(), 0.1) for part in (model.body, model.head))
    agent = watching(model, [body, head])

    def step():
        for optimizer in (body, head):
            optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        for optimizer in (body, head):
            optimizer.step()

    step()
    from gradvane import _torch_ops

    def fails(tensor):
        raise RuntimeError("it has no shape")

    with monkeypatch.context() as patched:
        patched.setattr(_torch_ops, "sizes", fails)
        for _ in range(30):
            model.head = torch.nn.Linear(4, 2)
            head.param_groups[0]["params"] = list(model.head.parameters())
            for _ in range(5):
                step()
    step()
    assert agent.flush()
    assert agent.status().steps > 100 and agent._watcher.faults == 0
