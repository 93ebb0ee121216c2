"""Snapshots and rollbacks of a training on a CUDA device: what is restored, that no hook waits, and that streams which
still write or read are ordered with the copies.

Needs no pytest: `python rollback_cuda_test.py`. Without a device it is skipped, with GRADVANE_GPU_TESTS_MUST_RUN=1 it
fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import without_pytest

DEVICE = torch.device("cuda", 0)
SPIN = 20_000_000
"""cycles of the device's clock: some 10 ms"""
OPTIMIZERS = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "AdamW capturable": lambda p: torch.optim.AdamW(p, torch.tensor(1e-2, device=DEVICE), capturable=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
}


def training(make=OPTIMIZERS["AdamW fused"], width=64):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.2),
                                torch.nn.Linear(width, 8)).to(DEVICE)
    return model, make(model.parameters())


def step(model, optimizer, factor=1.0):
    optimizer.zero_grad()
    (model(torch.randn(32, model[0].in_features, device=DEVICE)).square().mean() * factor).backward()
    optimizer.step()


def state(model, optimizer):
    from kept import everything

    return {**everything([model], [optimizer]), "device's random": torch.cuda.get_rng_state(DEVICE)}


def different(a, b):
    from kept import differences

    def on_host(found):
        return {key: value.cpu() if isinstance(value, torch.Tensor) else value for key, value in found.items()}

    return differences(on_host(a), on_host(b))


def kept(model, optimizer, **how):
    from kept import keeper_of

    return keeper_of([model], [optimizer], **how)


def test_a_rollback_brings_every_bit_back():
    for name, make in OPTIMIZERS.items():
        model, optimizer = training(make)
        places = [p.data_ptr() for p in model.parameters()]
        with kept(model, optimizer) as keeper:
            for _ in range(3):
                step(model, optimizer)
            assert keeper.snapshot()
            good = state(model, optimizer)
            step(model, optimizer, float("nan"))
            assert different(state(model, optimizer), good), "the control"
            keeper.rollback("test")
            assert different(state(model, optimizer), good) == [], name
            assert [p.data_ptr() for p in model.parameters()] == places
            assert keeper._copies.device_synchronizations == 0


def test_a_bad_step_is_undone_as_if_it_had_never_been():
    def run(bad_comes):
        model, optimizer = training()
        with kept(model, optimizer, every=1) as keeper:
            for i in range(10):
                if i == 6:
                    if not bad_comes:
                        continue
                    keeper.snapshots.settle(wait=True)  # the snapshot of the step before is to be there
                    assert keeper.latest().step == 6
                    keeper.ask("test")
                step(model, optimizer, float("nan") if i == 6 else 1.0)
                keeper.snapshots.settle(wait=True)
        return state(model, optimizer)

    assert different(run(True), run(False)) == []


def test_no_hook_waits_for_the_device():
    model, optimizer = training()
    with kept(model, optimizer, every=1) as keeper:
        for _ in range(3):
            step(model, optimizer)  # what is made once may wait
        x = torch.randn(32, 64, device=DEVICE)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(50):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        keeper.snapshots.settle(wait=True)
        assert keeper.snapshots.committed > 3 and not keeper.snapshots.refused, keeper.snapshots.refused


def spoiled_restores(orders, repetitions):
    """How many restores a second stream spoils: it spins, and then writes the parameters that are restored."""
    model, optimizer = training()
    second = torch.cuda.Stream(DEVICE)
    spoiled = 0
    with kept(model, optimizer) as keeper:
        if orders:
            keeper.writes_on(second)
        step(model, optimizer)
        assert keeper.snapshot()
        good = state(model, optimizer)
        for _ in range(repetitions):
            second.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(second), torch.no_grad():
                torch.cuda._sleep(SPIN)
                for p in model.parameters():
                    p.fill_(7)
            keeper.rollback("test")
            second.synchronize()
            spoiled += different(state(model, optimizer), good) != []
    return spoiled


def test_a_second_stream_that_spins_and_then_writes_spoils_no_restore():
    assert spoiled_restores(True, 200) == 0


def test_without_the_order_it_does():
    """The control."""
    assert spoiled_restores(False, 10) > 0


def late_snapshot(gates):
    """The side stream is busy for long, and the optimizer is ready to write before it is done."""
    model, optimizer = training()
    model = torch.nn.Sequential(model[0], model[3])  # without buffers, no other stream waits
    optimizer = OPTIMIZERS["AdamW fused"](model.parameters())
    with kept(model, optimizer, every=1) as keeper:
        step(model, optimizer)
        keeper.snapshots.settle(wait=True)
        if not gates:
            keeper._copies.gate = lambda flight: setattr(flight, "is_gated", True) or True
        side = keeper._copies._streams.side(DEVICE)
        with torch.cuda.stream(side):
            torch.cuda._sleep(10 * SPIN)
        step(model, optimizer)
        good = {k: v for k, v in state(model, optimizer).items() if k.startswith("model")}
        with torch.no_grad():
            keeper.before_step()
            for p in model.parameters():  # as an optimizer's update
                p.add_(1)
        torch.cuda.synchronize()
        keeper.snapshots.settle(wait=True)
        keeper.rollback("test")
        now = {k: v for k, v in state(model, optimizer).items() if k.startswith("model")}
        return different(now, good)


def test_the_optimizer_waits_for_copies_that_are_late():
    assert late_snapshot(True) == []


def test_without_that_wait_a_snapshot_has_other_weights():
    """The control."""
    assert late_snapshot(False)


def test_no_second_copy_of_the_model_lies_on_the_device():
    model, optimizer = training(width=1024)
    with kept(model, optimizer) as keeper:
        step(model, optimizer)
        keeper.snapshot()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        keeper.snapshot()
        keeper.rollback("test")
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() - before < 1024 * 1024 * 4


def test_pinned_memory_is_flat():
    model, optimizer = training()
    with kept(model, optimizer) as keeper:
        step(model, optimizer)
        keeper.snapshot()
        held = keeper.snapshots.bytes
        for _ in range(1000):
            assert keeper.snapshot()
        assert keeper.snapshots.bytes == held and keeper.snapshots.allocations == 2
        assert all(one.arena.is_pinned and one.arena._memory.is_pinned() for one in keeper.snapshots._pair.both)


def test_nothing_is_taken_while_a_graph_is_captured():
    model, optimizer = training(OPTIMIZERS["AdamW capturable"])
    x = torch.randn(32, 64, device=DEVICE)
    with kept(model, optimizer, every=1) as keeper:
        def work():
            optimizer.zero_grad(set_to_none=False)
            model(x).square().mean().backward()
            optimizer.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        keeper.snapshots.settle(wait=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        assert keeper.snapshots.refused["capturing"] == 1
        graph.replay()
        assert keeper.snapshot()
        good = state(model, optimizer)
        graph.replay()
        keeper.rollback("test")
        assert different(state(model, optimizer), good) == []
        graph.replay()
        assert different(state(model, optimizer), good), "the graph still writes to the same memory"


def test_the_fallback_waits_for_the_device_and_is_counted():
    model, optimizer = training()
    second = torch.cuda.Stream(DEVICE)
    with kept(model, optimizer) as keeper:
        keeper._copies.synchronizes_devices = True
        step(model, optimizer)
        keeper.snapshot()
        good = state(model, optimizer)
        second.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(second), torch.no_grad():
            torch.cuda._sleep(SPIN)
            model[0].weight.fill_(7)
        keeper.rollback("test")
        second.synchronize()
        assert different(state(model, optimizer), good) == []
        assert keeper._copies.device_synchronizations == 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    sys.exit(without_pytest.run(globals()))
