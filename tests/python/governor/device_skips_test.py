"""Steps that a fused optimizer leaves out by itself, by `found_inf`. On a CPU, where torch's fused ones heed it too."""

import pytest
import torch
from poisoned import backward, batches, equal, made

from gradvane._watch import device_skips, governing, hooks

FUSED = {
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, 1e-2, fused=True),
}
OTHERS = {
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, fused=True),
    "a class of the script's own": lambda p: type("Own", (torch.optim.AdamW,), {})(p, 1e-2, fused=True),
    "one group in two": lambda p: torch.optim.AdamW([{"params": [q], "fused": i > 0} for i, q in enumerate(p)], 1e-2),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, fused=True),
}


class Device:
    """Stands before the native agent, which needs a device for this: `next` is what the next step finds there. Where it is
    set, the native agent is not asked about the step."""

    def __init__(self, native):
        self._native = native
        self.next = None
        self.asked = []
        """for each step, whether its optimizer heeds what is found"""
        self.heeded = []

    def __getattr__(self, name):
        return getattr(self._native, name)

    def step_begins(self, index, has_closure, heeds_device):
        self.asked.append(heeds_device)
        verdict = self._native.step_begins(index, has_closure, False)
        return verdict if self.next is None else governing.TAKE

    def found_on_devices(self, index):
        return [] if self.next is None or not self.asked[-1] else [self.next]

    def heeds_devices(self, index):
        self.heeded.append(index)


@pytest.fixture
def device(watching):
    def start(model, optimizer, **options):
        watcher = watching(model, optimizer, on_nonfinite="skip", skip_limit=100, skip_on_device=True, **options)._watcher
        watcher._native = watcher.device_skips._native = Device(watcher._native)
        return watcher._native

    return start


def flag(value):
    return torch.tensor(float(value))


def trained(make, *, without=(), steps=8):
    model, optimizer = made(make)
    for i, batch in enumerate(batches(steps), 1):
        if i not in without:
            backward(model, optimizer, batch)
            optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("bad", [(3, 6), (1, 2), ()], ids=str)
@pytest.mark.parametrize("name", FUSED)
def test_weights_states_and_counters_are_those_of_a_run_without_the_batch(device, name, bad):
    wanted = trained(FUSED[name], without=bad)
    model, optimizer = made(FUSED[name])
    found = device(model, optimizer)
    assert device_skips.heeds_found_inf(optimizer)
    for i, batch in enumerate(batches(8), 1):
        backward(model, optimizer, batch, "all" if i in bad else None)
        found.next = flag(i in bad)
        optimizer.step()
        assert not hasattr(optimizer, "found_inf")
    assert len(found.heeded) == 8
    assert equal(model.state_dict(), wanted[0].state_dict())
    assert equal(optimizer.state_dict(), wanted[1].state_dict())


def test_the_control_without_the_flag_the_bad_step_is_taken(device):
    model, optimizer = made(FUSED["AdamW"])
    found = device(model, optimizer)
    backward(model, optimizer, batches(1)[0], "all")
    found.next = flag(0)
    optimizer.step()
    assert not all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", OTHERS)
def test_an_optimizer_that_does_not_heed_it_to_the_letter_is_not_asked_to(device, name):
    model, optimizer = made(OTHERS[name])
    found = device(model, optimizer)
    backward(model, optimizer, batches(1)[0])
    optimizer.step()
    assert found.asked == [False] and not found.heeded


def test_without_the_option_none_is_asked(watching):
    model, optimizer = made(FUSED["AdamW"])
    watcher = watching(model, optimizer, on_nonfinite="skip")._watcher
    watcher._native = found = Device(watcher._native)
    backward(model, optimizer, batches(1)[0])
    optimizer.step()
    assert found.asked == [False]


def test_where_the_flags_cannot_be_joined_the_step_is_taken_as_without_a_policy(device, monkeypatch):
    model, optimizer = made(FUSED["AdamW"])
    found = device(model, optimizer)
    monkeypatch.setattr(device_skips, "joined", lambda flags: 1 / 0)
    found.next = flag(1)
    before = [p.clone() for p in model.parameters()]
    backward(model, optimizer, batches(1)[0])
    optimizer.step()
    assert not found.heeded and not equal(list(model.parameters()), before)


def test_a_fused_sgd_with_momentum_heeds_it_once_it_has_its_buffers(device):
    """Until then the host judges its steps, as the bad first one here."""
    bad = (1, 4, 7)
    wanted = trained(OTHERS["SGD with momentum"], without=bad)
    model, optimizer = made(OTHERS["SGD with momentum"])
    found = device(model, optimizer)
    for i, batch in enumerate(batches(8), 1):
        backward(model, optimizer, batch, "all" if i in bad else None)
        found.next = flag(i in bad) if i > 2 else None
        optimizer.step()
    assert found.asked == [False, False, *[True] * 6] and len(found.heeded) == 6
    assert equal(model.state_dict(), wanted[0].state_dict())
    assert equal(optimizer.state_dict(), wanted[1].state_dict())


def test_buffers_of_parameters_without_a_gradient_do_not_count():
    """torch looks at those that train in this step."""
    model, _ = made(FUSED["SGD"])
    first, second = list(model[0].parameters()), list(model[2].parameters())
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, fused=True)
    backward(model, optimizer, batches(1)[0])
    gradients = {p: p.grad for p in model.parameters()}
    for p in second:
        p.grad = None
    assert not device_skips.heeds_found_inf(optimizer)
    optimizer.step()
    assert device_skips.heeds_found_inf(optimizer), "the others are frozen"
    for p in (*first, *second):
        p.grad = gradients[p] if p in set(second) else None
    assert not device_skips.heeds_found_inf(optimizer), "their first step"
    optimizer.found_inf = flag(1)
    optimizer.step()
    del optimizer.found_inf
    assert all("momentum_buffer" in optimizer.state[p] for p in second), "the reason: made, and never written to"


def test_before_that_it_does_not_for_a_reason():
    """Its first step would leave buffers behind that nothing has written to."""
    model, optimizer = made(OTHERS["SGD with momentum"])
    backward(model, optimizer, batches(1)[0])
    optimizer.found_inf = flag(1)
    optimizer.step()
    assert all("momentum_buffer" in optimizer.state[p] for p in model.parameters())


def test_a_found_inf_that_is_there_already_is_nobodys_to_replace(device):
    model, optimizer = made(FUSED["AdamW"])
    found = device(model, optimizer)
    found.next = flag(0)
    backward(model, optimizer, batches(1)[0])
    theirs = optimizer.found_inf = flag(1)
    before = [p.clone() for p in model.parameters()]
    optimizer.step()
    assert optimizer.found_inf is theirs and equal(list(model.parameters()), before)
    assert found.asked == [False] and not found.heeded


def test_under_a_gradient_scaler_its_own_check_is_left_alone(device):
    model, optimizer = made(FUSED["AdamW"])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    found = device(model, optimizer)
    found.next = flag(1)
    before = [p.clone() for p in model.parameters()]
    scaler.scale(model(batches(1)[0]).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not equal(list(model.parameters()), before) and scaler.get_scale() == 8.0
    assert found.asked == [False]
    assert not hasattr(optimizer, "found_inf") and not hasattr(optimizer, "grad_scale")


def test_a_step_that_raises_leaves_nothing_behind(device):
    model, optimizer = made(FUSED["AdamW"])
    found = device(model, optimizer)
    backward(model, optimizer, batches(1)[0])
    optimizer.param_groups[0]["betas"] = None
    found.next = flag(1)
    with pytest.raises(TypeError):
        optimizer.step()
    assert not hasattr(optimizer, "found_inf") and not hooks._instead
    assert found.heeded, "the control: it would have been heeded"


def test_a_closure_is_evaluated_once_and_its_loss_comes_back(device):
    model, optimizer = made(FUSED["AdamW"])
    found = device(model, optimizer)
    before = [p.clone() for p in model.parameters()]
    calls = []

    def closure():
        calls.append(backward(model, optimizer, batches(1)[0]))
        return 0.25

    found.next = flag(1)
    assert optimizer.step(closure) == 0.25
    assert len(calls) == 1 and equal(list(model.parameters()), before)


def test_flags_of_several_devices_are_one():
    for flags in ((0,), (1,), (0, 0, 0), (0, 1, 0), (1, 1)):
        assert device_skips.joined([flag(one) for one in flags]).item() == max(flags)


def test_on_a_cpu_the_option_changes_nothing(watching):
    model, optimizer = made(FUSED["AdamW"])
    agent = watching(model, optimizer, on_nonfinite="skip", skip_on_device=True)
    for i, batch in enumerate(batches(6), 1):
        backward(model, optimizer, batch, "grad" if i == 3 else None)
        optimizer.step()
    wanted = trained(FUSED["AdamW"], without=(3,), steps=6)
    assert equal(model.state_dict(), wanted[0].state_dict())
    assert [s.get("skipped") for s in watching.steps()] == [None, None, "governor", None, None, None]
    assert agent._watcher.faults == 0


def test_it_is_refused_without_the_policy_that_it_belongs_to(watching):
    with pytest.raises(ValueError, match="set on_nonfinite to skip"):
        watching(*made(), on_nonfinite="stop", skip_on_device=True)
