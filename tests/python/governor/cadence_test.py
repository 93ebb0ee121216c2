"""When snapshots are due, whose steps they follow, and what they may cost."""

import time

import pytest
import torch
from kept import keeper_of

from gradvane._governor.cadence import Cadence
from gradvane._governor.leader import Leader


class Clock:
    """Moves by itself where a test lets it: a snapshot reads it when it begins and when it ends."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def steps_taken(cadence, steps, seconds_per_step, cost):
    """Steps at which a snapshot is taken, and the share of the time that they took."""
    now, spent, taken = 0.0, 0.0, []
    for step in range(1, steps + 1):
        now += seconds_per_step
        if cadence.is_due(step, now):
            cadence.taken(step, now)
            cadence.took(step, now, cost)
            now += cost
            spent += cost
            taken.append(step)
    return taken, spent / now


def test_by_steps_the_first_step_has_one_and_then_each_nth():
    assert steps_taken(Cadence(4, 0, 0), 13, 1.0, 0.0)[0] == [1, 5, 9, 13]
    assert steps_taken(Cadence(1, 0, 0), 3, 1.0, 5.0)[0] == [1, 2, 3]


def test_ranks_that_agree_take_them_at_the_same_steps_whatever_became_of_those_before():
    def due(cadence, refused, steps=12):
        """Steps at which one is due."""
        found = []
        for step in range(3, steps + 3):
            if cadence.is_due(step, float(step)):
                found.append(step)
                if step not in refused:
                    cadence.taken(step, float(step))
                cadence.took(step, float(step), 0.0)
        return found
    common = [due(Cadence(4, 0, 0, is_common=True), refused) for refused in ([], [3, 4, 7, 8])]
    assert common == [[3, 7, 11]] * 2
    alone = [due(Cadence(4, 0, 0), refused) for refused in ([], [3, 4, 7, 8])]
    assert alone == [[3, 7, 11], [3, 4, 5, 9, 13]], "the control: the next step will do, and from there on others"
    late = Cadence(4, 0, 0, is_common=True)
    assert due(late, []) == [3, 7, 11]
    late.lost()
    assert not late.is_due(14, 14.0) and late.is_due(15, 15.0), "one that came to nothing is not made good"


def test_by_seconds_the_first_step_after_them_has_one():
    assert steps_taken(Cadence(0, 2.5, 0), 9, 1.0, 0.0)[0] == [1, 4, 7]


def test_whichever_comes_first():
    assert steps_taken(Cadence(3, 10.0, 0), 8, 4.0, 0.0)[0] == [1, 4, 7]
    assert steps_taken(Cadence(8, 10.0, 0), 8, 4.0, 0.0)[0] == [1, 4, 7]


def test_switched_off_there_is_none():
    assert steps_taken(Cadence(0, 0, 0.1), 10, 1.0, 0.0)[0] == []


@pytest.mark.parametrize("budget", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("cost", [0.3, 2.0])
def test_a_budget_is_held_however_often_they_are_asked_for(budget, cost):
    taken, share = steps_taken(Cadence(1, 0, budget), 10_000, 0.1, cost)
    assert len(taken) > 5 and share <= budget * 1.3, "the last one has not been paid off"
    _, unbounded = steps_taken(Cadence(1, 0, 0), 1000, 0.1, cost)
    assert unbounded > budget * 1.4, "the control"


def test_a_budget_is_held_in_a_training_by_all_that_snapshots_do_in_its_hooks():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    shares = {}
    for budget in (0.1, 0.0):
        with keeper_of([model], [optimizer], every=1, budget=budget, clock=time.thread_time) as keeper:
            spent = [0.0]
            for name in ("before_step", "after_step"):
                def timed(*args, hook=getattr(keeper, name)):
                    began = time.thread_time()
                    result = hook(*args)
                    spent[0] += time.thread_time() - began
                    return result
                setattr(keeper, name, timed)
            for i in range(800 if budget else 100):
                if i == 10:  # the memory of both is there
                    spent[0], began = 0.0, time.thread_time()
                optimizer.zero_grad()
                model(torch.ones(8, 300)).square().mean().backward()
                optimizer.step()
            shares[budget] = spent[0] / (time.thread_time() - began)
            assert keeper.snapshots.committed > 5
    assert shares[0.1] < 0.15 < 0.26 < shares[0.0], shares


def test_what_a_snapshot_costs_later_counts_for_its_budget():
    cadence = Cadence(1, 0, 0.5)
    cadence.taken(1, 0.0)
    cadence.took(1, 0.0, 1.0)
    assert not cadence.is_due(2, 1.9) and cadence.is_due(2, 2.0)
    cadence.also_took(1.0)
    assert not cadence.is_due(2, 3.9) and cadence.is_due(2, 4.0)


def test_one_that_was_refused_is_tried_again_at_the_next_step():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with keeper_of([model], [optimizer], every=10) as keeper:
        bad = [True, True, False]
        keeper.badness = lambda: "a spike" if bad[min(keeper.step, 3) - 1] else None
        for _ in range(12):
            optimizer.step()
        assert keeper.snapshots.refused == {"incident": 2} and keeper.snapshots.committed == 1
        assert keeper.latest().step == 3
        optimizer.step()
        assert keeper.latest().step == 13


def test_the_time_that_memory_takes_is_no_cost_of_a_snapshot():
    """Otherwise the first one would postpone the second for long."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    clock = Clock()
    with keeper_of([model], [optimizer], every=1, budget=0.5, clock=clock) as keeper:
        refusal = keeper.snapshots._pair.refusal

        def slow(plan):
            clock.now += 100.0
            return refusal(plan)

        keeper.snapshots._pair.refusal = slow
        for _ in range(3):
            optimizer.step()
            clock.now += 1.0
        assert keeper.snapshots.committed == 3


def lead(*keys, everyone=None):
    leader = Leader()
    everyone = sorted(set(keys)) if everyone is None else everyone
    return [leader.stepped(key, everyone) for key in keys]


def test_the_optimizer_that_ends_the_first_round_leads():
    assert lead(1, 1, 1) == [True, True, True]
    assert lead(1, 2, 1, 2) == [False, True, False, True]
    assert lead(2, 1, 2, 1) == [False, True, False, True]
    assert lead(1, 1, 1, 2, 1, 1, 1, 2) == [False, False, False, True, False, False, False, True]


def test_one_that_never_steps_is_not_waited_for_for_ever():
    assert lead(*[1] * 40, everyone=[1, 2]).index(True) == 31


def test_one_that_begins_to_step_late_has_its_part_in_the_next_round():
    """As a GAN whose critic is trained alone at first: 5 of its steps, then one of the generator."""
    critic, generator = 1, 2
    steps = lead(*[critic] * 100, *([generator] + [critic] * 5) * 3)
    assert steps[99] and not any(steps[100:106]), "it is not known yet where a round ends"
    assert [i for i, leads in enumerate(steps) if leads and i >= 100] == [106, 112]


def test_a_leader_that_steps_no_more_is_none():
    steps = lead(1, 1, 2, 1, 1, 2, *[1] * 150)
    assert steps[:6] == [False, False, True] * 2 and not any(steps[6:6 + 3 * 32]), "rounds may be longer than they were"
    assert steps.index(True, 6) < 6 + 3 * 32 + 32 + 1 and steps[-1], "then another one leads"


def test_they_choose_again_when_one_comes_or_goes():
    leader = Leader()
    assert [leader.stepped(key, [1, 2]) for key in (1, 2)] == [False, True]
    assert [leader.stepped(key, [1]) for key in (1, 1)] == [True, True], "the leader has gone"
    assert [leader.stepped(key, [1, 3]) for key in (1, 3, 1)] == [False, True, False]
