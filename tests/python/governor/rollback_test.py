"""After a rollback a training goes on, to the last bit, as one that never broke."""

import random

import numpy
import pytest
import torch
from kept import ScheduleFreeLike, differences, everything, keeper_of

import gradvane
from gradvane._governor.rollback import Request

STEPS, GOOD, BAD = 12, 5, 8
"""steps of the whole run, the one of the snapshot where not each step has one, and the one that broke it"""


def model_of(seed=0):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.3),
                               torch.nn.Linear(16, 4))


def batches():
    rounds = torch.Generator().manual_seed(3)
    return [torch.randn(16, 6, generator=rounds) for _ in range(STEPS + 1)]


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, 1e-2),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True, amsgrad=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "AdamW capturable rate": lambda p: torch.optim.AdamW(p, torch.tensor(1e-2), foreach=False),
    "SGD momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "LBFGS": lambda p: torch.optim.LBFGS(p, 1e-2, max_iter=3, history_size=4),
    "schedule-free": lambda p: ScheduleFreeLike(p),
}


def step(model, optimizer, batch, poison=False):
    def closure():
        optimizer.zero_grad()
        noise = random.random() + numpy.random.rand()
        loss = (model(batch) * noise).square().mean()
        loss.backward()
        if poison:
            model[0].weight.grad[0, 0] = float("nan")
        return loss

    if isinstance(optimizer, torch.optim.LBFGS):
        optimizer.step(closure)
    else:
        closure()
        optimizer.step()


def whole_run(make):
    """States after each step of a run that nothing happens to."""
    model = model_of()
    optimizer = make(model.parameters())
    states = {}
    for i, batch in enumerate(batches()[:STEPS], 1):
        step(model, optimizer, batch)
        states[i] = everything([model], [optimizer])
    return states


def places_of(model, optimizer):
    """In memory: parameters and buffers, then what the optimizer keeps."""
    kept = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    return [tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers(), *kept)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("every", [1, GOOD - 1])
def test_training_on_after_a_rollback_is_bit_identical_to_a_run_that_never_broke(name, every):
    expected = whole_run(OPTIMIZERS[name])
    model = model_of()
    optimizer = OPTIMIZERS[name](model.parameters())
    places = places_of(model, optimizer)
    data = batches()
    with keeper_of([model], [optimizer], every=every) as keeper:
        i, broke = 1, False
        while i <= STEPS:
            if i == BAD and not broke:
                broke = True
                moments = places_of(model, optimizer)
                keeper.ask("test")
                step(model, optimizer, data[-1] * 1e3, poison=True)  # a batch that the whole run never saw
                assert keeper.rollbacks == 1
                if name != "LBFGS":  # whose history is other tensors after each step
                    assert places_of(model, optimizer) == moments, "in place"
                good = keeper.latest().step
                assert good == (BAD - 1 if every == 1 else GOOD)
                assert differences(everything([model], [optimizer]), expected[good]) == []
                i = good + 1
                continue
            step(model, optimizer, data[i - 1])
            assert differences(everything([model], [optimizer]), expected[i]) == [], i
            i += 1
    assert places_of(model, optimizer)[: len(places)] == places


def test_without_the_rollback_the_run_is_another_one():
    """The control: the comparison sees what a broken step leaves behind."""
    make = OPTIMIZERS["Adam"]
    expected = whole_run(make)
    model = model_of()
    optimizer = make(model.parameters())
    for batch in batches()[:4]:
        step(model, optimizer, batch)
    step(model, optimizer, batches()[-1] * 1e3, poison=True)
    assert len(differences(everything([model], [optimizer]), expected[4])) > 10


def test_state_that_was_made_after_the_snapshot_is_gone_after_the_rollback():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with keeper_of([model], [optimizer]) as keeper:
        assert keeper.snapshot(), "before the first step"
        before = everything([model], [optimizer])
        for batch in batches()[:3]:
            step(model, optimizer, batch)
        optimizer.param_groups[0]["made_later"] = 1
        assert len(optimizer.state) == 6
        keeper.rollback("test")
        assert len(optimizer.state) == 0 and "made_later" not in optimizer.param_groups[0]
        assert differences(everything([model], [optimizer]), before) == []
        assert all(p.grad is None for p in model.parameters())


def test_an_optimizer_is_restored_reset_or_kept():
    for policy in ("restore", "reset", "keep"):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        with keeper_of([model], [optimizer]) as keeper:
            step(model, optimizer, batches()[0])
            scheduler.step()
            assert keeper.snapshot()
            before = everything([model], [optimizer])
            step(model, optimizer, batches()[1])
            scheduler.step()
            bad = everything([model], [optimizer])
            done = keeper.rollback("test", optimizer=policy)
            now = everything([model], [optimizer])
        assert done.optimizer == policy
        weights = [name for name in before if name.startswith("model")]
        assert all(torch.equal(now[name], before[name]) for name in weights)
        rates = {"restore": 0.05, "reset": 0.05, "keep": 0.025}
        assert optimizer.param_groups[0]["lr"] == rates[policy]
        assert scheduler.last_epoch == (2 if policy == "keep" else 1)
        moments = [name for name in now if ".momentum_buffer" in name]
        assert len(moments) == (0 if policy == "reset" else 6)
        source = before if policy == "restore" else bad
        assert all(torch.equal(now[name], source[name]) for name in moments)


def schedule_of(kind, optimizer):
    lr = torch.optim.lr_scheduler
    return {
        "step": lambda: lr.StepLR(optimizer, 2, 0.5),
        "one cycle": lambda: lr.OneCycleLR(optimizer, 0.2, total_steps=40),
        "lambda": lambda: lr.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        "sequential": lambda: lr.SequentialLR(
            optimizer, [lr.LinearLR(optimizer, 0.1, total_iters=3), lr.ExponentialLR(optimizer, 0.9)], [3]),
        "plateau": lambda: lr.ReduceLROnPlateau(optimizer, patience=0, factor=0.5),
    }[kind]()


@pytest.mark.parametrize("kind", ["step", "one cycle", "lambda", "sequential", "plateau"])
def test_a_batch_that_is_undone_leaves_the_schedule_as_a_batch_that_never_came(kind):
    def run(comes):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        schedule = schedule_of(kind, optimizer)
        with keeper_of([model], [optimizer], every=1) as keeper:
            for i, batch in enumerate(batches()[:STEPS]):
                if i == 6:
                    if not comes:
                        continue
                    keeper.ask("test")
                    batch = batch * float("nan")
                step(model, optimizer, batch)
                schedule.step(*([1.0] if kind == "plateau" else []))
        return everything([model], [optimizer]), schedule.state_dict()

    (undone, its_schedule), (without, schedule) = run(True), run(False)
    assert differences(undone, without) == []
    assert str(its_schedule) == str(schedule)


def test_a_learning_rate_is_backed_off_more_at_each_return_to_one_snapshot():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer, batches()[0])
        keeper.snapshot()
        for times in (1, 2, 3):
            step(model, optimizer, batches()[times])
            schedule.step()
            assert keeper.rollback("test", lr_factor=0.5).lr_factor == 0.5**times
            assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**times
            schedule.step()
            assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**times, "the schedule starts from it too"


def test_a_scheduler_that_cannot_take_its_state_back_is_reported_and_all_else_is_restored():
    class Picky(torch.optim.lr_scheduler.StepLR):
        def load_state_dict(self, state):
            raise ValueError("this schedule is over")

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = Picky(optimizer, 2)
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer, batches()[0])
        keeper.snapshot()
        before = everything([model], [optimizer])
        step(model, optimizer, batches()[1])
        schedule.step()
        assert keeper.rollback("test").errors == ("Picky: ValueError: this schedule is over",)
        assert differences(everything([model], [optimizer]), before) == []


def test_a_state_that_can_be_written_back_only_in_part_ends_the_training():
    class Fragile(dict):
        is_broken = False

        def update(self, *values):
            if self.is_broken:
                raise RuntimeError("it may not change")
            super().update(*values)

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.param_groups[0] = Fragile(optimizer.param_groups[0])
    with keeper_of([model], [optimizer]) as keeper:
        stops = []
        keeper.note_failure = lambda: stops.append(True)
        step(model, optimizer, batches()[0])
        keeper.snapshot()
        optimizer.param_groups[0].is_broken = True
        keeper.ask("test")
        step(model, optimizer, batches()[1])
        assert keeper.rollbacks == 0 and stops == []
        with pytest.raises(gradvane.GradvaneError, match="could not be written back whole"):
            keeper.raise_if_broken()
        keeper.raise_if_broken()  # once
        keeper.act(optimizer, Request("policy", by_policy=True))
        assert stops == [True] and keeper.rollbacks == 0
        assert keeper.last_failure == (
            "the snapshot of step 0 could not be written back whole: RuntimeError: it may not change")
        with pytest.raises(gradvane.GradvaneError, match="could not be written back whole"):
            keeper.rollback("test")
