"""Snapshots of a training that steps in several threads, and on a machine that has no thread left."""

import threading

import pytest
import torch
from kept import keeper_of
from small_net import net

from gradvane import GradvaneError
from gradvane._governor.generations import Examination
from gradvane._process import threads


def training():
    model = net()
    return model, torch.optim.AdamW(model.parameters(), 1e-2)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(4, 6)).square().mean().backward()
    optimizer.step()


def test_what_belongs_to_another_thread_is_refused():
    model, optimizer = training()
    with keeper_of([model], [optimizer], every=1) as keeper:
        step(model, optimizer)
        errors = []

        def other():
            step(model, optimizer)
            try:
                keeper.rollback("test")
            except GradvaneError as error:
                errors.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert keeper.snapshots.refused == {"threads": 1}
        assert errors == ["snapshots and rollbacks belong to the thread that steps the optimizers; call it there"]
        step(model, optimizer)
        assert keeper.snapshots.refused == {"threads": 2}, "the other one may be in a step now"
        with pytest.raises(GradvaneError, match="optimizers step in more than one thread"):
            keeper.rollback("test")


def test_a_second_thread_is_seen_though_the_first_one_leads():
    pairs = [training() for _ in range(2)]
    with keeper_of([model for model, _ in pairs], [optimizer for _, optimizer in pairs], every=1) as keeper:
        for _ in range(40):
            step(*pairs[0])
        good = keeper.snapshots.committed
        assert good == 9, "it leads once the other one has not stepped for long"
        thread = threading.Thread(target=step, args=pairs[1])
        thread.start()
        thread.join()
        for pair in pairs * 2:  # they choose again who leads
            step(*pair)
        assert keeper.snapshots.refused == {"threads": 2} and keeper.snapshots.committed == good


def test_where_no_thread_can_be_started_a_snapshot_is_refused_and_counted(monkeypatch):
    def none_left(_thread):
        raise RuntimeError("can't start new thread")

    model, optimizer = training()
    with keeper_of([model], [optimizer], every=1) as keeper:
        monkeypatch.setattr(threads, "start", none_left)
        monkeypatch.setattr(keeper.snapshots, "_examination", lambda pending: Examination(pending.generation, True, set()))
        step(model, optimizer)
        step(model, optimizer)
        assert keeper.snapshots.refused == {"failed": 2} and keeper.faults == 0
        assert "can't start new thread" in keeper.snapshots.last_refusal
