"""Threads that each train a model of their own at the same time."""

import threading

import pytest
import torch
from small_net import net

PATIENCE = 20
"""seconds"""


class _Waits(torch.autograd.Function):
    """Nothing, but in its backward pass: that says where it is, and waits until it may go on."""

    @staticmethod
    def forward(context, x, arrived, may_go_on):
        context.events = arrived, may_go_on
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        arrived, may_go_on = context.events
        arrived.set()
        assert may_go_on.wait(PATIENCE)
        return gradient, None, None


class Trainer(threading.Thread):
    """Takes two steps, and stops within the backward pass of the first until `goes_on` is set."""

    def __init__(self, scale):
        super().__init__()
        self.model = net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.losses = []
        self.is_in_pass = threading.Event()
        self.goes_on = threading.Event()
        self._scale = scale

    def run(self):
        for i in range(2):
            self.optimizer.zero_grad()
            loss = self._scale * self.model(torch.ones(4, 6, requires_grad=True)).square().mean()
            self.losses.append(float(loss.detach()))
            (_Waits.apply(loss, self.is_in_pass, self.goes_on) if i == 0 else loss).backward()
            self.optimizer.step()


class Ending(threading.Thread):
    """Python knows that it has ended, and it is there until `may_go`: join() returns a moment before a thread is gone."""

    def __init__(self, work):
        super().__init__()
        self.has_ended = threading.Event()
        self.may_go = threading.Event()
        self._work = work

    def run(self):
        self._work()
        self.has_ended.set()
        self.may_go.wait(PATIENCE)

    def is_alive(self):
        return super().is_alive() and not self.has_ended.is_set()


@pytest.fixture
def trainers():
    both = Trainer(1.0), Trainer(100.0)
    yield both
    for trainer in both:
        trainer.goes_on.set()


def test_a_pass_shows_nothing_of_what_another_thread_trains_meanwhile(watching, trainers):
    first, second = trainers
    watching(torch.nn.ModuleList([first.model, second.model]), [first.optimizer, second.optimizer])
    first.start()
    assert first.is_in_pass.wait(PATIENCE)
    second.goes_on.set()
    second.start()
    second.join(PATIENCE)  # from beginning to end within the first one's pass
    first.goes_on.set()
    first.join(PATIENCE)
    steps = watching.steps()
    for index, trainer in enumerate(trainers):
        mine = [step for step in steps if step["optimizer"] == index]
        assert [step["micro_steps"] for step in mine] == [1, 1]
        # Who trains what is known from the first step on. Until then passes that overlap have no loss, or the right one.
        assert mine[0].get("loss") in (None, pytest.approx(trainer.losses[0]))
        assert mine[1]["loss"] == pytest.approx(trainer.losses[1])


def test_a_thread_that_has_ended_leaves_its_optimizer_to_another(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    losses = []

    def one_step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 6)).square().mean()
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()

    threads = [Ending(one_step) for _ in range(4)]
    for thread in threads:
        thread.start()
        assert thread.has_ended.wait(PATIENCE)
    assert [step["loss"] for step in watching.steps()] == pytest.approx(losses)
    for thread in threads:
        thread.may_go.set()
        thread.join(PATIENCE)


def test_a_pass_during_which_another_thread_took_over_a_model_is_not_that_models(watching):
    """The thread that had it has ended, and is there for a moment more: until the pass is over that takes it over."""
    model, other = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    losses, in_pass, may_end, may_step = [], threading.Event(), threading.Event(), threading.Event()

    def one_step():
        loss = model(torch.ones(4, 6)).square().mean()
        losses.append(float(loss.detach()))
        loss.backward()
        assert may_step.wait(PATIENCE)
        optimizer.step()
        optimizer.zero_grad()

    def trains_another():
        loss = 100 * other(torch.ones(4, 6, requires_grad=True)).square().mean()
        _Waits.apply(loss, in_pass, may_end).backward()

    first, second, third = Ending(one_step), threading.Thread(target=trains_another), Ending(one_step)
    may_step.set()
    first.start()
    assert first.has_ended.wait(PATIENCE)
    may_step.clear()
    second.start()
    assert in_pass.wait(PATIENCE)
    third.start()
    while len(losses) < 2 or model[0].weight.grad is None:
        assert third.is_alive()
    first.may_go.set()
    first.join(PATIENCE)
    may_end.set()
    second.join(PATIENCE)
    may_step.set()
    assert third.has_ended.wait(PATIENCE)
    third.may_go.set()
    steps = watching.steps()
    assert [step.get("loss") for step in steps] == [pytest.approx(losses[0]), None], "not that of the other model"


def test_a_pass_that_raised_is_over_for_the_others(watching, trainers):
    first, second = trainers
    watching(torch.nn.ModuleList([first.model, second.model]), [first.optimizer, second.optimizer])
    with pytest.raises(RuntimeError, match="scalar outputs"):
        first.model(torch.ones(4, 6)).backward()
    second.goes_on.set()
    second.start()
    second.join(PATIENCE)
    steps = watching.steps()
    assert [step["loss"] for step in steps] == pytest.approx(second.losses)


def test_gradients_that_are_added_to_are_counted_beside_other_threads_that_train(watching):
    """Their gradients stay the same tensors, which no pass may look into there: each thread trains one optimizer."""
    models = [net() for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    watching(torch.nn.ModuleList(models), optimizers)
    losses = [[], []]
    both = threading.Barrier(2)

    def train(index):
        for _ in range(3):
            optimizers[index].zero_grad(set_to_none=False)
            for _ in range(2):
                both.wait(PATIENCE)
                loss = (index + 1) * models[index](torch.ones(4, 6)).square().mean()
                losses[index].append(float(loss.detach()))
                loss.backward()
            optimizers[index].step()

    threads = [threading.Thread(target=train, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for index in range(2):
        known = [step for step in watching.steps() if step["optimizer"] == index][1:]
        assert [step["micro_steps"] for step in known] == [2, 2]
        assert [step["loss"] for step in known] == pytest.approx([sum(losses[index][i:i + 2]) for i in (2, 4)])
