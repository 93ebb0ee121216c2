"""The order of copies and writers on a device, on a simulated one: what a missing wait does there, it may do on a real
one."""

import pytest
import torch
from kept import differences, everything, keeper_of
from lazy_streams import DEVICE, LazyStreams

from gradvane._governor import copies as module
from gradvane._governor.copies import Copies


@pytest.fixture(autouse=True)
def on_device(monkeypatch):
    monkeypatch.setattr(module, "device_of", lambda tensor: DEVICE)


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()


def calls_in(streams, kinds=("record", "wait", "copy")):
    return [call[:2] if call[0] == "copy" else call for call in streams.log if call[0] in kinds]


def test_copies_are_behind_the_writers_and_only_the_optimizer_waits_for_parameters():
    model, optimizer = training()
    streams = LazyStreams()
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=1) as keeper:
        step(model, optimizer)
        assert calls_in(streams) == [
            ("record", "main", 1), ("wait", "side", 1),  # behind the update
            ("copy", "side"), ("record", "side", 2), ("wait", "main", 2),  # buffers: before the next forward pass
            ("copy", "side"), ("record", "side", 3),  # parameters and moments: beside it
        ]
        streams.log.clear()
        keeper.before_step()
        assert calls_in(streams) == [("wait", "main", 3)]
        keeper.before_step()
        assert calls_in(streams) == [("wait", "main", 3)], "once"


def test_a_snapshot_that_is_asked_for_lets_nothing_run_beside_it():
    model, optimizer = training()
    streams = LazyStreams()
    with keeper_of([model], [optimizer], streams=streams) as keeper:
        step(model, optimizer)
        assert keeper.snapshot()
    assert calls_in(streams) == [("record", "main", 1), ("wait", "side", 1), ("copy", "side"), ("record", "side", 2),
                                 ("wait", "main", 2)]


def test_a_restore_is_behind_writers_and_readers_and_writers_are_behind_it():
    streams = LazyStreams()
    copies = Copies(streams)
    copies.writes_on(DEVICE, "second")
    living, host = torch.zeros(3), torch.ones(3)
    copies.back([living], [host])
    assert calls_in(streams) == [
        ("record", "second", 1), ("wait", "main", 1), ("record", "side", 2), ("wait", "main", 2),
        ("copy", "main"), ("record", "main", 3), ("wait", "second", 3)]
    assert living.tolist() == [1, 1, 1] and copies.host_waits == 0 == copies.device_synchronizations


def test_the_fallback_waits_for_the_device_and_is_counted():
    streams = LazyStreams()
    copies = Copies(streams)
    copies.synchronizes_devices = True
    streams.put("nobody knows it", lambda: living.fill_(7))
    living = torch.zeros(3)
    copies.back([living], [torch.ones(3)])
    streams.run_all()
    assert copies.device_synchronizations == 1 and living.tolist() == [1, 1, 1]


@pytest.mark.parametrize("synchronizes", [False, True])
def test_an_option_asks_for_the_fallback_and_what_it_waits_for_is_not_the_trainings(watching, synchronizes):
    model, optimizer = training()
    agent = watching(model, optimizer, rollback_device_sync=synchronizes)
    keeper, streams = agent._watcher.keeper, LazyStreams()
    assert keeper._copies.own_calls == agent._native.own_calls
    keeper._copies._streams, keeper._copies.own_calls = streams, lambda delta: streams.log.append(("own", delta))
    step(model, optimizer)
    assert keeper.snapshot()
    keeper.rollback("a test")
    assert keeper._copies.device_synchronizations == streams.log.count(("synchronize",)) == synchronizes
    depth = 0
    for call in streams.log:
        if call[0] == "own":
            depth += call[1]
        else:
            assert depth == 1, call
    assert depth == 0


def spoiled_restores(seed, orders, repetitions):
    """How often a restore was spoiled by a second stream, which spins and then writes what is being restored."""
    model, optimizer = training()
    streams = LazyStreams(seed)
    spoiled = 0
    with keeper_of([model], [optimizer], streams=streams) as keeper:
        if orders:
            keeper._copies.writes_on(DEVICE, "second")
        for _ in range(repetitions):
            step(model, optimizer)
            keeper.snapshot()
            good = everything([model], [optimizer])
            step(model, optimizer)
            for _ in range(5):
                streams.put("second", lambda: None)  # it spins
            streams.put("second", lambda: [p.data.fill_(7) for p in model.parameters()])
            keeper.rollback("test")
            streams.put("second", lambda: None)
            streams.run_all()
            spoiled += differences(everything([model], [optimizer]), good) != []
    return spoiled


def test_a_second_stream_that_still_writes_does_not_write_into_what_was_restored():
    assert spoiled_restores(None, True, 200) == 0
    assert sum(spoiled_restores(seed, True, 20) for seed in range(10)) == 0


def test_without_the_order_it_does():
    """The control."""
    assert spoiled_restores(None, False, 10) == 10
    assert spoiled_restores(1, False, 20) > 5


def overlapped(seed, monkeypatch=None):
    """Snapshots at each step, which run as late as they can, and a rollback from a bad one."""
    model, optimizer = training()
    streams = LazyStreams(seed)
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=1) as keeper:
        if monkeypatch is not None:
            monkeypatch.setattr(keeper._copies, "gate", lambda flight: setattr(flight, "is_gated", True) or True)
        states = {}
        for i in range(1, 5):
            step(model, optimizer)
            states[i] = everything([model], [optimizer])
        keeper.ask("test")
        step(model, optimizer)
        assert keeper.rollbacks == 1
        return differences(everything([model], [optimizer]), states[keeper.latest().step])


def test_a_snapshot_has_the_weights_of_its_step_however_late_it_is_copied():
    for seed in (None, *range(20)):
        assert overlapped(seed) == []


def test_without_the_gate_it_has_those_of_a_later_step(monkeypatch):
    """The control."""
    assert overlapped(None, monkeypatch)


def test_buffers_are_copied_before_the_next_forward_pass_writes_them(monkeypatch):
    def run():
        model, optimizer = training()
        streams = LazyStreams()
        streams.lands = False
        with keeper_of([model], [optimizer], streams=streams, every=1) as keeper:
            step(model, optimizer)
            mean = model[1].running_mean.clone()
            model(torch.randn(8, 6))  # a forward pass that no step follows
            keeper.snapshots.settle(wait=True)
            newest = keeper.latest()
            at = newest.captured.names.index("buffer 1.running_mean")
            return torch.equal(newest.arena.views(newest.plan)[at], mean)

    assert run()
    monkeypatch.setattr(LazyStreams, "wait", lambda self, stream, event: None)
    assert not run(), "the control"


def test_parameters_that_are_written_between_steps_are_no_snapshot_and_from_then_on_streams_wait():
    model, optimizer = training()
    streams = LazyStreams()
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=1) as keeper:
        for i in range(4):
            step(model, optimizer)
            with torch.no_grad():
                model[0].weight.clamp_(-0.1, 0.1)  # as a critic's weights are clipped
        assert keeper.snapshots.refused == {"written": 1}
        keeper.rollback("test")
        clamped = model[0].weight.abs().max()
        assert clamped > 0.1, "it is the state right after the step"


def test_one_that_is_lost_on_its_way_is_tried_again_at_the_next_step():
    model, optimizer = training()
    streams = LazyStreams()
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=100) as keeper:
        step(model, optimizer)
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)
        step(model, optimizer)
        assert keeper.snapshots.refused == {"written": 1}
        assert keeper.snapshots.latest().step == 2, "under way, or there already"
        keeper.snapshots.settle(wait=True)
        step(model, optimizer)
        assert keeper.latest().step == 2 and not keeper.snapshots.is_pending(), "the next one is due at step 102"


def test_copies_that_have_not_landed_hold_nobody_up():
    model, optimizer = training()
    streams = LazyStreams()
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=1) as keeper:
        step(model, optimizer)
        for _ in range(3):
            keeper.snapshots.settle()
        assert keeper.snapshots.committed == 0 and keeper.snapshots.is_pending()
        assert not [call for call in streams.log if call[0] == "host waits"]
        streams.lands = True
        keeper.before_step()
        keeper.snapshots.settle(wait=True)
        assert keeper.snapshots.committed == 1
        assert not [call for call in streams.log if call[0] == "host waits"], "it had landed by itself"


def test_a_gradient_that_is_being_copied_is_held_until_it_has_landed():
    """Memory that is freed meanwhile would be given to others."""
    streams = LazyStreams()
    streams.lands = False
    copies = Copies(streams)
    tensor = torch.ones(3)
    flight = copies.out([torch.zeros(3)], [tensor], set(), True)
    assert flight.held[0] is tensor
    copies.land(flight)
    assert flight.held == []


def test_without_buffers_no_stream_waits_before_the_next_update():
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    streams = LazyStreams()
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=1):
        optimizer.step()
        assert calls_in(streams) == [
            ("record", "main", 1), ("wait", "side", 1), ("copy", "side"), ("record", "side", 2)]


def test_a_capture_of_a_graph_is_asked_nothing_and_ends_a_snapshot_that_is_under_way():
    """An event that is queried or waited for would spoil the capture."""
    model, optimizer = training()
    streams = LazyStreams()
    streams.lands = False
    with keeper_of([model], [optimizer], streams=streams, every=1) as keeper:
        step(model, optimizer)
        streams.log.clear()
        streams.captures = True
        step(model, optimizer)
        step(model, optimizer)
        assert streams.log == [] and keeper.snapshots.refused["capturing"] == 3
        streams.captures = False
        step(model, optimizer)
        keeper.snapshots.settle(wait=True)
        assert keeper.snapshots.committed == 1 and keeper.latest().step == 4
