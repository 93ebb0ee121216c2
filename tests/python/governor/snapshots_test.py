"""A snapshot is good or there is none: what is refused, what a broken one leaves, and what memory it takes."""

import gc
import os
import resource
import tracemalloc

import pytest
import torch
from kept import differences, everything, keeper_of

from gradvane._governor import generations
from gradvane._governor.host_memory import available, refusal
from gradvane._governor.restoring import Mismatch
from gradvane._governor.rollback import NothingToRestore


def training(lr=1e-2):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2),
                                torch.nn.Linear(16, 4))
    return model, torch.optim.AdamW(model.parameters(), lr)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(16, 6)).square().mean().backward()
    optimizer.step()


PLACES = {
    "a parameter": lambda m, o: m[3].weight.data,
    "a buffer": lambda m, o: m[1].running_var,
    "a moment": lambda m, o: o.state[m[0].bias]["exp_avg_sq"],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_state_with_a_nonfinite_number_is_refused_and_the_one_before_is_restored(place, value):
    model, optimizer = training()
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer)
        assert keeper.snapshot()
        good = everything([model], [optimizer])
        step(model, optimizer)
        PLACES[place](model, optimizer).view(-1)[-1] = value
        for _ in range(3):
            assert not keeper.snapshot()
        assert keeper.snapshots.refused == {"nonfinite": 3} and keeper.snapshots.committed == 1
        assert "is not finite" in keeper.snapshots.last_refusal
        keeper.rollback("test")
        assert differences(everything([model], [optimizer]), good) == []


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("mask", torch.full((9, 9), -float("inf")).triu(1), persistent=False)
        self.register_buffer("bias", torch.tensor([0.0, float("inf")]))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.inner(x)


def test_a_mask_of_infinities_is_part_of_a_good_state():
    """Masks of attention hold them. What was finite at the first snapshot has to stay so."""
    torch.manual_seed(0)
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with keeper_of([model], [optimizer]) as keeper:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            assert keeper.snapshot(), keeper.snapshots.last_refusal
        good = everything([model], [optimizer])
        model.scale[1] = float("inf")
        assert not keeper.snapshot()
        assert "scale" in keeper.snapshots.last_refusal
        model.mask[0, 0] = float("nan")
        model.scale[1] = 1.0
        keeper.rollback("test")
        assert differences(everything([model], [optimizer]), good) == []


def test_a_mask_with_a_nan_is_not_a_good_state():
    model = Masked()
    model.mask[0, 0] = float("nan")
    with keeper_of([model], [torch.optim.SGD(model.parameters(), 0.1)]) as keeper:
        assert not keeper.snapshot()
        assert "mask" in keeper.snapshots.last_refusal


def test_the_tensor_that_is_not_finite_is_named():
    model, optimizer = training()
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer)
        model[3].weight.data[2, 5] = float("nan")
        assert not keeper.snapshot()
        assert keeper.snapshots.last_refusal == "parameter 3.weight is not finite"


def test_large_finite_numbers_are_finite_in_every_type():
    """Their sum is not: a check by sums alone would refuse them."""
    for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        model = torch.nn.Module()
        largest = torch.finfo(kind).max
        model.p = torch.nn.Parameter(torch.full((1000,), largest, dtype=kind))
        with keeper_of([model], []) as keeper:
            assert keeper.snapshot(), kind
            model.p.data[500] = float("nan")
            assert not keeper.snapshot(), kind


def test_nothing_is_kept_while_an_incident_is_open():
    model, optimizer = training()
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer)
        keeper.badness = lambda: "the loss diverges"
        assert not keeper.snapshot() and keeper.snapshots.refused == {"incident": 1}
        assert keeper.snapshots.last_refusal == "the loss diverges"
        keeper.badness = lambda: None
        assert keeper.snapshot()


def test_what_becomes_known_between_copy_and_commit_counts():
    model, optimizer = training()
    answers = iter([None, "the loss diverges"])
    with keeper_of([model], [optimizer]) as keeper:
        keeper.badness = lambda: next(answers)
        assert not keeper.snapshot() and keeper.snapshots.refused == {"incident": 1}


class Broken(Exception):
    pass


@pytest.mark.parametrize("where", ["copy", "examine"])
def test_one_that_breaks_between_copy_and_commit_leaves_the_one_before(monkeypatch, where):
    """What a kill leaves in memory: half of the new one is written."""
    model, optimizer = training()
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer)
        assert keeper.snapshot()
        good = everything([model], [optimizer])
        step(model, optimizer)
        if where == "copy":
            whole = keeper._copies.out

            def half(to, source, at_once, overlaps):
                whole(to[: len(to) // 2], source[: len(to) // 2], at_once, overlaps)
                raise Broken

            monkeypatch.setattr(keeper._copies, "out", half)
        else:
            def broken(*_):
                raise Broken

            monkeypatch.setattr(generations.digest, "first_nonfinite", broken)
        assert not keeper.snapshot() and keeper.snapshots.refused == {"failed": 1}
        monkeypatch.undo()
        assert [one.number for one in keeper.snapshots.good()] == [1]
        keeper.rollback("test")
        assert differences(everything([model], [optimizer]), good) == []


def test_a_generation_whose_bytes_have_changed_is_passed_over():
    model, optimizer = training()
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer)
        assert keeper.snapshot()
        older = everything([model], [optimizer])
        step(model, optimizer)
        assert keeper.snapshot()
        newest, _ = keeper.snapshots.good()
        newest.arena.views(newest.plan)[0].view(-1)[3] += 1
        done = keeper.rollback("test")
        assert done.generation == 1 and keeper.snapshots.damaged == 1
        assert differences(everything([model], [optimizer]), older) == []
        keeper.snapshots.good()[0].arena.views(newest.plan)[0].zero_()
        before = everything([model], [optimizer])
        with pytest.raises(NothingToRestore, match="no good snapshot"):
            keeper.rollback("again")
        assert differences(everything([model], [optimizer]), before) == []


def test_snapshots_of_the_bad_step_and_later_ones_are_given_up():
    model, optimizer = training()
    with keeper_of([model], [optimizer], every=1) as keeper:
        states = {}
        for i in range(1, 4):
            step(model, optimizer)
            states[i] = everything([model], [optimizer])
        done = keeper.rollback("test", bad_step=3)
        assert done.to_step == 2 and done.steps_lost == 1
        assert differences(everything([model], [optimizer]), states[2]) == []


def parameter(*shape):
    return torch.nn.Parameter(torch.ones(shape))


MISMATCHES = {
    "another shape": (lambda m, o: setattr(m[3], "weight", parameter(5, 16)), "parameter 3.weight is"),
    "another type": (lambda m, o: m[0].double(), "parameter 0.weight is"),
    "a parameter more": (lambda m, o: m.register_parameter("more", parameter(2)), "more is new"),
    "a buffer less": (lambda m, o: m[1].register_buffer("running_mean", None), "1.running_mean is gone"),
    "a group more": (lambda m, o: o.add_param_group({"params": [parameter(2)]}), "2 groups and had 1"),
    "another parameter": (lambda m, o: o.param_groups[0]["params"].__setitem__(0, parameter(16, 6)),
                          "has other parameters"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_a_training_that_has_changed_is_left_bit_identical(what):
    model, optimizer = training()
    change, message = MISMATCHES[what]
    with keeper_of([model], [optimizer]) as keeper:
        step(model, optimizer)
        assert keeper.snapshot()
        step(model, optimizer)
        change(model, optimizer)
        before = everything([model], [optimizer])
        with pytest.raises(Mismatch, match=message):
            keeper.rollback("test")
        assert differences(everything([model], [optimizer]), before) == []
        assert keeper.rollbacks == 0


def test_a_mismatch_at_a_step_is_a_line_and_training_goes_on(caplog):
    caplog.set_level("INFO", "gradvane")
    model, optimizer = training()
    with keeper_of([model], [optimizer], every=1) as keeper:
        step(model, optimizer)
        model.register_buffer("more", torch.ones(1))
        keeper.ask("test")
        step(model, optimizer)
        assert keeper.failed_rollbacks == 1 and "buffer more is new" in keeper.last_failure
        assert any("no rollback: the snapshot is of another state" in message for message in caplog.messages)


def test_memory_is_flat_over_a_thousand_snapshots():
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with keeper_of([model], [optimizer]) as keeper:
        optimizer.zero_grad()
        model(torch.ones(2, 300)).sum().backward()
        optimizer.step()
        for _ in range(20):
            keeper.snapshot()
        addresses = sorted(one.arena.address for one in keeper.snapshots._pair.both)
        gc.collect()
        resident = resident_bytes()
        tracemalloc.start()
        try:
            keeper.snapshot()
            start = tracemalloc.get_traced_memory()[0]
            for _ in range(1000):
                assert keeper.snapshot()
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - start
        finally:
            tracemalloc.stop()
        assert sorted(one.arena.address for one in keeper.snapshots._pair.both) == addresses
        assert keeper.snapshots.allocations == 2
        state = sum(p.numel() for p in model.parameters()) * 4 * 3
        assert state * 2 <= keeper.snapshots.bytes < state * 2.1 + (1 << 20)
        assert grown < 100_000, f"{grown} bytes of Python's"
        assert resident_bytes() - resident < 20 << 20, "a snapshot that stayed would be 2 GiB by now"


def resident_bytes():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize()


def test_a_snapshot_takes_no_memory_of_the_size_of_a_parameter():
    model = torch.nn.Linear(4000, 1000, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with keeper_of([model], [optimizer]) as keeper:
        keeper.snapshot()
        parameter = 4000 * 1000 * 4

        def largest(work):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True,
                                        acc_events=True) as seen:
                work()
            return max((event.self_cpu_memory_usage for event in seen.key_averages()), default=0)

        assert largest(lambda: (keeper.snapshot(), keeper.rollback("test"))) < parameter / 100
        assert largest(lambda: model.weight.detach().clone()) == parameter, "the control"


def test_it_is_refused_with_a_sentence_where_the_host_has_no_memory(monkeypatch):
    model, optimizer = training()
    monkeypatch.setattr("gradvane._governor.host_memory.available", lambda root=None: 200 << 20)
    with keeper_of([model], [optimizer], every=1) as keeper:
        step(model, optimizer)
        assert keeper.snapshots.refused == {"memory": 1}
        assert "two snapshots need" in keeper.snapshots.last_refusal and keeper.snapshots.bytes == 0


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_control_group_counts(tmp_path, version):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n")
    assert available(tmp_path) == 8000000 * 1024
    mount = tmp_path / ("sys/fs/cgroup" if version == 2 else "sys/fs/cgroup/memory")
    inner = mount / "job/step"
    inner.mkdir(parents=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (tmp_path / "proc/self/cgroup").write_text("0::/job/step\n" if version == 2 else "4:cpu,memory:/job/step\n")
    for folder, limit in ((inner, "max" if version == 2 else str(2**62)), (mount / "job", str(3 << 30))):
        (folder / names[0]).write_text(limit)
        (folder / names[1]).write_text(str(2 << 30))
    stat = "inactive_file" if version == 2 else "total_inactive_file"
    (mount / "job/memory.stat").write_text(f"anon 5\n{stat} {512 << 20}\n")
    assert available(tmp_path) == (1 << 30) + (512 << 20), "what caches files is free"
    assert refusal(1 << 30, tmp_path) is None
    assert "available" in refusal(2 << 30, tmp_path)


def test_a_state_that_cannot_be_copied_is_refused_by_name():
    model, optimizer = training()
    model.register_buffer("table", torch.eye(4).to_sparse())
    with keeper_of([model], [optimizer]) as keeper:
        assert not keeper.snapshot() and keeper.snapshots.refused == {"unsupported": 1}
        assert keeper.snapshots.last_refusal.startswith("buffer table is sparse_coo")


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_whose_memory_is_freed_for_a_while_is_refused_by_name(place):
    """As what offloads or shards it frees it."""
    model, optimizer = training()
    step(model, optimizer)
    with keeper_of([model], [optimizer]) as keeper:
        storage = PLACES[place](model, optimizer).untyped_storage()
        kept, size = storage.clone(), storage.nbytes()
        storage.resize_(0)
        assert not keeper.snapshot() and keeper.snapshots.refused == {"unsupported": 1}
        assert "has an empty storage" in keeper.snapshots.last_refusal
        storage.resize_(size)
        storage.copy_(kept)
        assert keeper.snapshot()
        storage.resize_(0)
        if place == "a moment":  # the optimizer gets another tensor
            keeper.rollback("test")
            assert PLACES[place](model, optimizer).isfinite().all()
            return
        with pytest.raises(Mismatch):
            keeper.rollback("test")


def test_a_forked_child_leaves_the_snapshots_of_its_parent_alone():
    model, optimizer = training()
    with keeper_of([model], [optimizer], every=1) as keeper:
        step(model, optimizer)
        good = everything([model], [optimizer])
        child = os.fork()
        if child == 0:
            try:
                with torch.no_grad():
                    for p in model.parameters():
                        p.zero_()
                keeper.stop()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        keeper.ask("test")
        step(model, optimizer)
        assert keeper.rollbacks == 1
        assert differences(everything([model], [optimizer]), good) == []


def test_a_generation_that_is_written_over_is_named_no_more():
    model, optimizer = training()
    with keeper_of([model], [optimizer], every=1) as keeper:
        named = []
        keeper.snapshots.note_newest = lambda: named.append([step for step, _ in keeper.good()])
        copies = keeper._copies.out
        for _ in range(3):
            step(model, optimizer)
        assert named[-1] == [3, 2]

        def breaks(*_how):
            raise RuntimeError("no")

        keeper._copies.out = breaks
        step(model, optimizer)
        assert named[-1] == [3] and keeper.snapshots.refused == {"failed": 1}
        keeper._copies.out = copies
        step(model, optimizer)
        assert named[-1] == [5, 3]
