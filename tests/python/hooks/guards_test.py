"""Loops that look at a batch themselves and leave it behind if it is bad: each is reported once, with its blame."""

import math

import pytest
import running
import torch
from small_net import net

import gradvane

BATCHES = 40
BAD = (7, 8, 23)
"""two of them next to each other"""


class BadBatch(Exception):
    pass


def is_bad_loss(loss, params):
    return not torch.isfinite(loss)


def is_bad_gradient(loss, params):
    return any(not p.grad.isfinite().all() for p in params)


def is_bad_norm(loss, params):
    return not math.isfinite(torch.stack([p.grad.norm() for p in params]).norm())


def is_bad_clip(loss, params):
    return not torch.nn.utils.clip_grad_norm_(params, 1.0).isfinite()


def raises(loss, params):
    torch.nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    return False


def raises_by_hand(loss, params):
    if is_bad_gradient(loss, params):
        raise BadBatch
    return False


GUARDS = {"loss": is_bad_loss, "gradients": is_bad_gradient, "norm": is_bad_norm, "clip": is_bad_clip,
          "clip raises": raises, "exception": raises_by_hand}
CLEARS = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(),
    "optimizer, to zero": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "module": lambda model, optimizer: model.zero_grad(),
}


def guarded(guard, clear, spoil, model, optimizer, *, clears_at_once=False):
    params = list(model.parameters())
    steps = 0
    for batch in range(1, BATCHES + 1):
        if not clears_at_once:
            clear(model, optimizer)
        x = torch.randn(4, 6)
        if batch in BAD and spoil == "loss":
            x[1, 2] = float("nan")
        loss = model(x).square().mean()
        loss.backward()
        if batch in BAD and spoil == "gradient":
            params[2].grad[0, 3] = float("inf")
        try:
            is_bad = guard(loss, params)
        except (BadBatch, RuntimeError):
            is_bad = True
        if not is_bad:
            optimizer.step()
            steps += 1
        if clears_at_once:
            clear(model, optimizer)
    return steps


SEEN = [(guard, spoil) for guard in GUARDS for spoil in ("loss", "gradient") if (guard, spoil) != ("loss", "gradient")]
CASES = [(guard, "optimizer", spoil, at_once, mode) for guard, spoil in SEEN
         for at_once, mode in ((False, "lagged"), (True, "lagged"), (False, "immediate"))]
CASES += [(guard, clear, spoil, False, "lagged") for guard, spoil in (("loss", "loss"), ("gradients", "gradient"), ("clip", "loss"))
          for clear in ("optimizer, to zero", "module")]


@pytest.mark.parametrize(("guard", "clear", "spoil", "at_once", "mode"), CASES)
def test_a_batch_that_the_loop_leaves_behind_is_told_once_with_its_blame(watching, guard, clear, spoil, at_once, mode):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    agent = watching(model, optimizer, mode=mode)
    incidents = []
    agent.on_incident(incidents.append)
    taken = guarded(GUARDS[guard], CLEARS[clear], spoil, model, optimizer, clears_at_once=at_once)
    steps = watching.steps()
    good = [s for s in steps if "skipped" not in s]
    bad = [s for s in steps if s.get("skipped") == "loop"]
    assert len(good) == taken == BATCHES - len(BAD) and [s["step"] for s in good] == list(range(1, taken + 1))
    assert [s["step"] for s in bad] == [7, 7, 21], "the step to come"
    assert all(math.isfinite(s["loss"]) and sum(s["nonfinite"]["grad"].values()) == 0 for s in good)
    for s in bad:
        first = s["first_nonfinite"]
        assert first["site"] == ("loss" if spoil == "loss" else "grad")
        if spoil == "gradient":
            assert (first["param"], first["element"], first["kind"]) == ("2.weight", 3, "pos_inf")
    told = [(one.first_step, one.last_step, one.steps, one.closed_at is not None) for one in incidents]
    assert told == [(7, 7, 1, False), (7, 7, 2, True), (21, 21, 1, False), (21, 21, 1, True)], "when it opens and when it clears"
    assert {one.kind for one in incidents} == {"nonfinite_loss" if spoil == "loss" else "nonfinite_grad"}
    blame = gradvane.Blame("loss", "nan", None, 0) if spoil == "loss" else gradvane.Blame("grad", "pos_inf", "2.weight", 3)
    assert [one.blame for one in incidents] == [blame] * 4
    assert all(blame == one.order[0].blame and one.order[0].run_step == one.first_step for one in incidents)


SCRIPT = """
    import sys
    import torch
    sys.path[:0] = {folders!r}
    import guards_test
    torch.manual_seed(0)
    model = guards_test.net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    guard, spoil = {case!r}
    print(guards_test.guarded(guards_test.GUARDS[guard], guards_test.CLEARS["optimizer"], spoil, model, optimizer))
"""


@pytest.mark.parametrize("case", [("loss", "loss"), ("gradients", "gradient"), ("norm", "loss"), ("clip", "gradient"),
                                  ("exception", "gradient")], ids=lambda case: case[0])
def test_under_gradvane_run_each_bad_batch_has_a_record_and_each_row_of_them_its_lines(tmp_path, case):
    folders = [str(running.TESTS / "hooks"), str(running.TESTS / "support"), str(running.TESTS)]
    steps, done = running.watched(running.write(tmp_path, SCRIPT.format(folders=folders, case=case)), cwd=tmp_path)
    assert done.stdout == f"{BATCHES - len(BAD)}\n"
    bad = [(s["step"], s["first_nonfinite"]["site"]) for s in steps if s.get("skipped") == "loop"]
    site = "loss" if case[1] == "loss" else "grad"
    assert bad == [(7, site), (7, site), (21, site)] and len(steps) == BATCHES
    began = {"loss": "the loss became nan", "grad": "the gradient of 2.weight became pos_inf at element 3"}[site]
    for step in (7, 21):
        assert done.stderr.count(f"Step {step}: {began}") == 1, done.stderr


def test_gradients_that_are_dropped_by_hand_leave_the_loss_to_tell(watching):
    def clear(model, optimizer):
        for p in model.parameters():
            p.grad = None

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    guarded(is_bad_loss, clear, "loss", model, optimizer)
    bad = [s for s in watching.steps() if s.get("skipped") == "loop"]
    assert [s["first_nonfinite"]["site"] for s in bad] == ["loss"] * 3


def test_a_guard_under_a_gradient_scaler_is_told_with_gradients_as_they_would_be(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    watching(model, optimizer)
    for batch in range(1, 11):
        optimizer.zero_grad()
        loss = model(torch.full((4, 6), float("nan") if batch == 5 else 0.5)).square().mean()
        scaler.scale(loss).backward()
        if torch.isfinite(loss):
            scaler.step(optimizer)
            scaler.update()
    steps = watching.steps()
    assert [s["step"] for s in steps if "skipped" not in s] == list(range(1, 10))
    assert [s["first_nonfinite"]["site"] for s in steps if s.get("skipped") == "loop"] == ["loss"]


def test_what_a_loop_clears_for_other_reasons_is_neither_read_nor_told(watching):
    """A generator's pass writes to its critic's gradients too; no step is meant to use those."""
    generator, critic = net(), torch.nn.Linear(1, 1)
    ours = torch.optim.SGD(generator.parameters(), 0.01)
    theirs = torch.optim.SGD(critic.parameters(), 0.01)
    agent = watching(torch.nn.ModuleList([generator, critic]), [theirs, ours])
    discarded = []
    native = agent._native
    agent._watcher.left_behind._native = Told(native, discarded)
    for turn in range(10):
        theirs.zero_grad()
        critic(generator(torch.randn(4, 6)).detach()).square().mean().backward()
        theirs.step()
        ours.zero_grad()
        x = torch.full((4, 6), float("nan") if turn == 9 else 0.5)
        critic(generator(x)).mean().backward()
        ours.step()
    theirs.zero_grad()
    assert discarded == []
    steps = watching.steps()
    assert len(steps) == 20 and all("skipped" not in s for s in steps)


def test_a_loop_that_leaves_many_batches_behind_still_has_the_steps_it_takes(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    for batch in range(1, 31):
        optimizer.zero_grad(set_to_none=False)
        loss = model(torch.full((4, 6), 0.5 if batch % 3 == 0 else float("nan"))).square().mean()
        loss.backward()
        if torch.isfinite(loss):
            optimizer.step()
    steps = watching.steps()
    good = [s for s in steps if "skipped" not in s]
    assert [s["step"] for s in good][-9:] == list(range(good[-1]["step"] - 8, good[-1]["step"] + 1))
    assert all(s["micro_steps"] == 1 and math.isfinite(s["loss"]) for s in good[-9:])
    assert len([s for s in steps if s["nonfinite"]["loss"]["nan"]]) == 20


class Told:
    """The native agent, and what it was told to discard."""

    def __init__(self, native, told):
        self._native, self._told = native, told

    def __getattr__(self, name):
        return getattr(self._native, name)

    def discard(self, *what):
        self._told.append(what)
        self._native.discard(*what)


def test_clearing_is_as_it_was_once_the_agent_is_gone():
    before = (vars(torch.optim.Optimizer)["zero_grad"], vars(torch.nn.Module)["zero_grad"])
    gradvane.attach(net(), port=-1).detach()
    assert (vars(torch.optim.Optimizer)["zero_grad"], vars(torch.nn.Module)["zero_grad"]) == before
