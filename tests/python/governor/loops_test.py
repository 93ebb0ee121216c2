"""Loops as people write them, watched by an agent: one whose bad batch is undone ends, to the last bit, where the loop
that never took this batch ends."""

import random

import pytest
import torch
from kept import differences, everything
from torch.utils.data import DataLoader, TensorDataset

import gradvane

EPOCHS, BATCHES = 3, 5


@pytest.fixture
def kept(watching):
    """attach() with a snapshot at each step; None where nothing watches."""

    def start(*what, every=1):
        agent = watching(*what)
        agent._watcher.keeper.keep(every=every)
        return agent

    yield start
    if (agent := watching.agent) is not None:
        assert agent._watcher.faults == 0 == agent._watcher.keeper.faults


def data(shuffle):
    torch.manual_seed(1)
    x = torch.randn(4 * BATCHES, 6)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=shuffle)


def model_of():
    torch.manual_seed(0)
    random.seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.3),
                               torch.nn.Linear(16, 1))


def run(bad, agent_of, evaluates=False, accumulates=1):
    """The state at the end. Batch `bad` is left out or, where an agent watches, is taken with NaN and undone."""
    train, held_out = data(True), data(False)
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    agent = agent_of(model, optimizer) if agent_of is not None else None
    number = 0
    for _ in range(EPOCHS):
        for x, y in train:
            number += 1
            if number == bad:
                if agent is None:
                    continue
                x = x * float("nan")
            for part, target in zip(x.chunk(accumulates), y.chunk(accumulates)):
                (torch.nn.functional.mse_loss(model(part), target) * random.random()).backward()
            if number == bad:
                agent.rollback("a bad batch", when="after_step")
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if evaluates:
            model.eval()
            with torch.no_grad():
                sum(float(model(x).sum()) for x, _ in held_out)
            model.train()
    if agent is not None:
        assert agent._watcher.keeper.rollbacks == 1
        # Until the worker has heard of the rollback, the bad step has spoilt the state.
        assert set(agent._watcher.keeper.snapshots.refused) <= {"incident"}
    return {**everything([model], [optimizer]), "schedule": str(schedule.state_dict()), "python": random.getstate()}


@pytest.mark.parametrize("bad", [3, BATCHES + 1, 2 * BATCHES],
                         ids=["mid-epoch", "first of an epoch", "last of an epoch"])
@pytest.mark.parametrize("evaluates", [False, True])
def test_a_bad_batch_leaves_no_trace(kept, bad, evaluates):
    """Between two epochs the loader draws a new order; the numbers after it must be those after it."""
    assert differences(run(bad, kept, evaluates), run(bad, None, evaluates)) == []


def test_nor_does_it_with_several_backward_passes_per_step(kept):
    assert differences(run(7, kept, accumulates=2), run(7, None, accumulates=2)) == []


def test_the_comparison_sees_a_batch_that_was_taken(kept):
    """The control."""
    assert len(differences(run(3, None), run(4, None))) > 10


def test_what_is_lost_is_reported_on_the_thread_that_trains(kept, caplog):
    loader = data(False)
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = kept(model, optimizer, every=4)
    seen = []
    agent.on_rollback(seen.append)
    agent.on_rollback(lambda rollback: 1 / 0)
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            if (epoch, number) == (1, 2):
                agent.rollback("a test", when="after_step")
            optimizer.step()
    (done,) = seen
    assert isinstance(done, gradvane.Rollback)
    assert (done.step, done.to_step, done.steps_lost, done.batches_lost) == (8, 5, 3, 3)
    assert done.reason == "a test" and done.optimizer == "restore" and done.lr_factor == 1 and done.errors == ()
    assert done.snapshot_age_seconds > 0 and done.seconds > 0
    assert "an on_rollback callback failed" in caplog.messages


class Gan:
    def __init__(self, critic_steps):
        torch.manual_seed(0)
        self.critic_steps = critic_steps
        self.g = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 6))
        self.d = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
        self.og = torch.optim.Adam(self.g.parameters(), 1e-2)
        self.od = torch.optim.Adam(self.d.parameters(), 1e-2)

    def iteration(self, x, before_critic=lambda: None):
        for _ in range(self.critic_steps):
            self.od.zero_grad()
            (self.d(self.g(torch.randn(8, 4)).detach()).mean() - self.d(x).mean()).backward()
            before_critic()
            self.od.step()
        self.og.zero_grad()
        (-self.d(self.g(torch.randn(8, 4))).mean()).backward()
        self.og.step()

    def state(self):
        return everything([self.g, self.d], [self.og, self.od])


@pytest.mark.parametrize("critic_steps", [1, 3])
def test_of_two_optimizers_both_go_back_to_the_end_of_an_iteration(kept, critic_steps):
    """The bad step is the critic's first one: the iteration goes on to its end, and all of it is undone."""
    def run(bad_comes):
        gan = Gan(critic_steps)
        agent = kept(None, [gan.og, gan.od]) if bad_comes else None
        rounds = torch.Generator().manual_seed(2)
        for i in range(8):
            x = torch.randn(8, 6, generator=rounds)
            if i != 5:
                gan.iteration(x)
            elif bad_comes:
                gan.iteration(x * float("nan"), lambda: agent.rollback("a bad batch", when="after_step"))
        if agent is not None:
            assert agent._watcher.keeper.step == 8 * critic_steps and agent._watcher.keeper.rollbacks == 1
        return gan.state()

    assert differences(run(True), run(False)) == []


def test_a_scaler_goes_back_too(kept):
    def run(bad_comes):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        agent = kept(model, optimizer) if bad_comes else None
        rounds = torch.Generator().manual_seed(2)
        scales = []
        for i in range(12):
            x = torch.randn(4, 6, generator=rounds)
            if i == 7 and not bad_comes:
                continue
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            if i == 3:
                model[0].weight.grad[0, 0] = float("inf")  # the scaler's own affair
            if i == 7:
                agent.rollback("a bad batch", when="after_step")
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return {**everything([model], [optimizer]), "scaler": str(scaler.state_dict())}, scales

    (undone, scales), (without, _) = run(True), run(False)
    assert differences(undone, without) == []
    assert len(set(scales)) > 2, "it grew and shrank"


def test_optimizers_that_step_within_the_backward_pass_go_back_together(kept):
    def run(bad_comes):
        model = model_of()
        optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in model.parameters()}

        def step_at_once(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step_at_once)
        agent = kept() if bad_comes else None
        rounds = torch.Generator().manual_seed(2)
        for i in range(6):
            x = torch.randn(4, 6, generator=rounds)
            if i == 4:
                if not bad_comes:
                    continue
                agent.rollback("a bad batch", when="after_step")
                x = x * float("nan")
            model(x).square().mean().backward()
        return everything([model], optimizers.values())

    assert differences(run(True), run(False)) == []


def test_what_the_script_adds_goes_back_too(kept):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    average = torch.optim.swa_utils.AveragedModel(model)
    agent = kept(model, optimizer, every=0)
    position = {"seen": 0, "order": torch.arange(3)}
    generator = torch.Generator().manual_seed(4)
    agent.snapshot_state("average", average)
    agent.snapshot_state("position", lambda: position, position.update)
    agent.snapshot_state("generator", generator.get_state, generator.set_state)
    agent.snapshot_state("broken", lambda: 1, lambda value: 1 / 0)
    with pytest.raises(TypeError, match="pass a function"):
        agent.snapshot_state("nothing", 5)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        average.update_parameters(model)
        position["seen"] += 1
        position["order"] += 1

    for _ in range(3):
        step()
    assert agent.snapshot()
    before = everything([average], []), dict(position, order=position["order"].clone()), generator.get_state()
    drawn = torch.randn(3, generator=generator)
    step()
    done = agent.rollback()
    assert differences(everything([average], []), before[0]) == []
    assert position["seen"] == 3 and position["order"].tolist() == before[1]["order"].tolist()
    assert torch.equal(generator.get_state(), before[2])
    assert torch.equal(torch.randn(3, generator=generator), drawn)
    assert done.errors == ("broken: ZeroDivisionError: division by zero",)


def test_ten_thousand_tiny_parameters_go_back(kept):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(3)) for _ in range(10_000)]
    optimizer = torch.optim.SGD(params, 0.1, momentum=0.9)
    agent = kept(None, optimizer)

    def step():
        optimizer.zero_grad()
        torch.stack(params).square().sum().backward()
        optimizer.step()

    step()
    good = everything([], [optimizer]), [p.detach().clone() for p in params]
    agent.rollback("a test", when="after_step")
    step()
    assert agent._watcher.keeper.rollbacks == 1
    assert differences(everything([], [optimizer]), good[0]) == []
    assert all(torch.equal(a, b) for a, b in zip(params, good[1]))


def test_a_training_without_a_tensor_has_snapshots_too(kept):
    model = torch.nn.Sequential()
    agent = kept(model)
    agent._watcher._names.add(model)
    assert agent.snapshot()
    numbers = torch.get_rng_state()
    torch.rand(3)
    agent.rollback()
    assert torch.equal(torch.get_rng_state(), numbers)


def test_flush_waits_until_the_rollback_is_known(kept):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = kept(model, optimizer)

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for _ in range(20):
        step(torch.ones(4, 6))
        assert agent.is_state_good()
        step(torch.full((4, 6), float("nan")))
        assert not agent.is_state_good(), "the control: its step has been exported"
        agent.rollback()
        assert agent.is_state_good()
    assert agent._watcher.keeper.rollbacks == 20


def test_an_option_of_a_rollback_that_is_not_allowed_is_refused(kept):
    model = model_of()
    agent = kept(model, torch.optim.SGD(model.parameters(), 0.1))
    for options, message in (({"optimizer": "forget"}, "allowed: restore, reset, keep"),
                             ({"when": "later"}, "allowed: now, after_step"), ({"lr_factor": 0}, "must be above 0"),
                             ({}, "no good snapshot to go back to")):
        with pytest.raises(gradvane.GradvaneError, match=message):
            agent.rollback(**options)
    with pytest.raises(gradvane.GradvaneError, match="restore, reset, keep"):
        agent.rollback(optimizer="forget", when="after_step")
