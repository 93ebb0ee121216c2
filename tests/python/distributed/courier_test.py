"""The exchange of norms between ranks: what it finds, and what it asks of the store. No process group but one."""

import datetime
import math
import struct
import threading
import time

import pytest
import torch.distributed as dist

import gradvane  # noqa: F401  (conftest has put it on the path)
from gradvane._ranks import courier as courier_module
from gradvane._ranks import norms
from gradvane._ranks.norms import PATIENCE, RankNorms

TICK = 0.005


class FakeStore:
    """A store that counts. A get that would wait fails the test."""

    def __init__(self):
        self.values = {}
        self.requests = 0
        self.most_bytes = 0

    def _count(self, value=b""):
        self.requests += 1
        self.most_bytes = max(self.most_bytes, len(value))

    def set(self, key, value):
        self._count(value)
        self.values[key] = value

    def check(self, keys):
        self._count()
        return all(key in self.values for key in keys)

    def get(self, key):
        self._count()
        return self.values[key]

    def multi_get(self, keys):
        self._count()
        return [self.values[key] for key in keys]

    def multi_set(self, keys, values):
        self._count()
        self.values.update(zip(keys, values))


class Rank:
    """A courier without its thread: it is asked at each tick of a clock that the test has."""

    def __init__(self, store, rank, size, now=0.0, token=None):
        self.norms = RankNorms(store, rank, size, token or 1000 + rank, now)
        self.new = []
        self.found = {}
        self._next = now

    def tick(self, now):
        wait = self.norms.seconds_to_next_look(now)
        if now < self._next or not (self.new or (wait is not None and wait <= 0)):
            return
        new, self.new = self.new, []
        for step, optimizer, norm in self.norms.turn(now, new):
            self.found[step, optimizer] = norm
        self._next = now + self.norms.pause


class NaiveRank:
    """What stood here before: every rank reads all others' keys at every look, 20 times a second."""

    def __init__(self, store, rank, size, now=0.0):
        self._store, self._rank, self._size, self._next = store, rank, size, now
        self.new, self.found, self._left, self._waiting = [], {}, [], {}

    def tick(self, now):
        if now < self._next or not (self.new or self._waiting):
            return
        self._next = now + 0.05
        if self.new:
            self._left = (self._left + self.new)[-256:]
            self._waiting.update({item[:2]: item[2] for item in self.new})
            self.new = []
            self._store.set(f"norms/{self._rank}", b"".join(struct.pack("<qid", *item) for item in self._left))
        others = []
        for rank in range(self._size):
            if rank == self._rank:
                continue
            if not self._store.check([f"norms/{rank}"]):
                return
            others.append({item[:2]: item[2] for item in struct.iter_unpack("<qid", self._store.get(f"norms/{rank}"))})
        for key in [key for key in self._waiting if all(key in other for other in others)]:
            self.found[key] = math.hypot(self._waiting.pop(key), *(other[key] for other in others))


def train(ranks, *, steps, every=1.0, starts_at=lambda rank: 0.0, number=lambda rank, i: i + 1, until=0.0):
    """Each rank contributes norm rank + 1 to a step `every` second; then the clock runs on for a while."""
    begins = [starts_at(rank) for rank in range(len(ranks))]
    given = [0] * len(ranks)
    now = 0.0
    while now < max(begins) + steps * every + max(3.0, until):
        for rank, one in enumerate(ranks):
            if given[rank] < steps and now >= begins[rank] + given[rank] * every:
                if (step := number(rank, given[rank])) is not None:
                    one.new.append((step, 0, rank + 1.0))
                given[rank] += 1
            one.tick(now)
        now += TICK


def expected(size):
    return math.sqrt(sum((rank + 1.0) ** 2 for rank in range(size)))


@pytest.mark.parametrize("size", [2, 3, 8, 32])
def test_every_rank_learns_the_norm_of_every_step(size):
    store = FakeStore()
    ranks = [Rank(store, rank, size) for rank in range(size)]
    train(ranks, steps=10)
    for one in ranks:
        assert one.found == {(step, 0): pytest.approx(expected(size)) for step in range(1, 11)}


@pytest.mark.parametrize("size", [2, 8, 32])
@pytest.mark.parametrize("case", ["in step", "began a step later", "numbers its steps one behind", "skipped a step",
                                  "is not there", "stops half way"])
def test_a_step_costs_a_few_requests_of_each_rank_whoever_is_behind(size, case):
    late = size - 1
    starts = {"began a step later": 1.0}.get(case, 0.0)

    def number(rank, i):
        if rank != late:
            return i + 1
        return {"numbers its steps one behind": i, "skipped a step": i + 1 if i != 5 else None, "is not there": None,
                "stops half way": i + 1 if i < 10 else None}.get(case, i + 1)

    def requests(kind):
        store = FakeStore()
        ranks = [kind(store, rank, size) for rank in range(size)]
        if case == "is not there":
            ranks[late].tick = lambda now: None
        train(ranks, steps=20, number=number, starts_at=lambda rank: starts if rank == late else 0.0)
        store.found = min(len(one.found) for one in ranks[:-1])
        return store

    ours, naive = requests(Rank), requests(NaiveRank)
    assert ours.found >= {"in step": 20, "skipped a step": 19, "numbers its steps one behind": 15}.get(case, 0)
    bound = 4 * size * 20  # in all ranks together: four a step and rank
    assert ours.requests <= bound
    assert ours.most_bytes <= 16 + 20 * 10
    if size > 2 and case not in ("in step", "is not there"):
        assert naive.requests > 4 * bound, "the test would not have seen the fault"


def test_the_number_of_requests_grows_with_the_ranks_and_not_with_their_square():
    counts = []
    for size in (8, 16, 32):
        store = FakeStore()
        train([Rank(store, rank, size) for rank in range(size)], steps=20)
        counts.append(store.requests)
    assert counts[1] < 2.5 * counts[0] and counts[2] < 2.5 * counts[1]


def test_nothing_is_asked_when_no_step_comes():
    store = FakeStore()
    ranks = [Rank(store, rank, 4) for rank in range(4)]
    train(ranks, steps=3)
    before = store.requests
    for i in range(20_000):
        for one in ranks:
            one.tick(100.0 + i * TICK)
    assert store.requests == before


def test_fast_steps_go_together_in_one_request():
    store = FakeStore()
    ranks = [Rank(store, rank, 4) for rank in range(4)]
    train(ranks, steps=1000, every=0.005)
    assert store.requests < 1000, "5 seconds, four ranks"
    assert store.most_bytes <= 16 + 20 * norms.MOST_ITEMS


def test_a_step_is_forgotten_after_its_time():
    store = FakeStore()
    ranks = [Rank(store, rank, 2) for rank in range(2)]
    train(ranks, steps=3)
    ranks[0].new.append((9, 0, 1.0))
    for i in range(int((PATIENCE + 1) / TICK)):
        ranks[0].tick(50.0 + i * TICK)
    before = store.requests
    ranks[1].new.append((9, 0, 1.0))  # much later
    for i in range(int(10 / TICK)):
        for one in ranks:
            one.tick(60.0 + i * TICK)
    assert (9, 0) not in ranks[0].found and (9, 0) not in ranks[1].found
    assert store.requests - before < 10


@pytest.mark.parametrize("restarted", [(0,), (1,), (0, 1, 2)])
def test_values_of_an_earlier_run_are_not_taken_for_this_ones(restarted):
    """A second process group on the same store, or an agent that was detached and attached."""
    store = FakeStore()
    ranks = [Rank(store, rank, 3) for rank in range(3)]
    train(ranks, steps=5)
    again = [Rank(store, rank, 3, 100.0, 2000 + rank) if rank in restarted else one for rank, one in enumerate(ranks)]
    for one in again:
        one.found = {}
    # The same steps once more, with other norms, and rank 2 last of all.
    for i in range(int(3.0 / TICK)):
        now = 100.0 + i * TICK
        if i == 0:
            again[0].new.append((1, 0, 10.0))
            again[1].new.append((1, 0, 20.0))
        if i == int(1.0 / TICK):
            again[2].new.append((1, 0, 20.0))
        for one in again:
            one.tick(now)
    for one in again:
        assert one.found == {(1, 0): pytest.approx(30.0)}


def test_a_key_that_holds_something_else_is_passed_over():
    store = FakeStore()
    ranks = [Rank(store, rank, 2) for rank in range(2)]
    store.values["part/1"] = b"something else"
    store.values["sums"] = b"?"
    train(ranks, steps=2)
    assert ranks[0].norms is not None


class FakeNative:
    """The agent's side: what the worker posts, and what comes of it."""

    def __init__(self):
        self.found, self.is_open, self.failures = {}, False, 0
        self._new, self._came = [], threading.Condition()

    def exchange_opens(self):
        self.is_open = True
        return True

    def exchange_closes(self):
        with self._came:
            self.is_open = False
            self._came.notify_all()

    def exchange_failed(self):
        self.failures += 1
        self.exchange_closes()

    def post(self, *item):
        with self._came:
            self._new.append(item)
            self._came.notify_all()

    def take_contributions(self, seconds):
        with self._came:
            self._came.wait_for(lambda: self._new or not self.is_open, timeout=seconds)
            new, self._new = self._new, []
            return new

    def give_norm(self, step, optimizer, norm):
        self.found[step, optimizer] = norm


def wait_until(condition, seconds=30.0):
    """A generous limit: the machine may be slow."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


@pytest.fixture
def tcp_store():
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_over_a_real_store_all_ranks_get_the_norm(tcp_store):
    size = 4
    stores = [dist.PrefixStore("norms/", tcp_store.clone()) for _ in range(size)]
    ranks = [RankNorms(stores[rank], rank, size, 1000 + rank, time.monotonic()) for rank in range(size)]
    found = [{} for _ in ranks]

    def carry(rank):
        until = time.monotonic() + 60
        while not all(len(of_rank) == 3 for of_rank in found) and time.monotonic() < until:
            # Again and again, so that a slow machine does not forget them meanwhile.
            steps = [(step, 0, 2.0) for step in (1, 2, 3)]
            for step, _, norm in ranks[rank].turn(time.monotonic(), steps):
                found[rank][step] = norm
            time.sleep(0.02)

    threads = [threading.Thread(target=carry, args=(rank,)) for rank in range(size)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [{step: pytest.approx(4.0) for step in (1, 2, 3)}] * size


@pytest.fixture
def one_of_two(tcp_store, monkeypatch):
    """A process group of one, in which the courier sees two ranks."""
    dist.init_process_group("gloo", store=tcp_store, rank=0, world_size=1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    yield tcp_store
    if dist.is_initialized():
        dist.destroy_process_group()


def test_the_thread_ends_with_the_process_group_and_does_not_hold_it_up(one_of_two):
    native = FakeNative()
    courier = courier_module.Courier.start(native)
    native.post(1, 0, 1.0)
    dist.destroy_process_group()
    assert wait_until(lambda: courier.has_ended)
    assert not native.is_open and native.failures == 0


def test_a_courier_that_is_stopped_ends_though_the_other_rank_never_came(one_of_two):
    native = FakeNative()
    courier = courier_module.Courier.start(native)
    native.post(1, 0, 1.0)
    courier.stop()
    assert wait_until(lambda: courier.has_ended)
    assert native.failures == 0


def test_a_store_that_is_gone_is_one_counted_error(one_of_two, monkeypatch, caplog):
    def gone(self, now, new):
        raise dist.DistNetworkError("Broken pipe\nwith a stack")

    caplog.set_level("INFO", logger="gradvane")
    monkeypatch.setattr(RankNorms, "turn", gone)
    native = FakeNative()
    courier = courier_module.Courier.start(native)
    native.post(1, 0, 1.0)
    assert wait_until(lambda: courier.has_ended)
    assert native.failures == 1 and not native.is_open
    (record,) = caplog.records
    assert record.message == "norms over all ranks are no longer exchanged: Broken pipe"


def test_switched_off_there_is_no_thread(one_of_two):
    native = FakeNative()
    native.exchange_opens = lambda: False
    assert courier_module.Courier.start(native) is None


def test_the_timeout_of_the_jobs_own_store_is_left_alone(one_of_two):
    before = one_of_two.timeout
    courier_module._begin()
    assert one_of_two.timeout == before
    assert dist.distributed_c10d._get_default_store().timeout == before


def test_a_file_store_is_not_written_to(tmp_path, monkeypatch):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        assert courier_module._begin() is None
    finally:
        dist.destroy_process_group()


def test_the_store_is_given_little_time_to_answer():
    assert datetime.timedelta(seconds=1) <= courier_module._ANSWER_WITHIN <= datetime.timedelta(seconds=10)
