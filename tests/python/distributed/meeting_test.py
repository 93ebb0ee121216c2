"""Where ranks that agree meet: in shared memory on one node, over gloo elsewhere."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import running

BEGIN = """
    import contextlib, datetime, json, os, resource, signal, sys, time
    import torch
    import torch.distributed as dist
    from gradvane import _native
    from gradvane._ranks import meeting
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def record(number):
        return f"{rank} {number}".encode().ljust(112, b".")

    def expected(number):
        return [f"{other} {number}".encode().ljust(112, b".") for other in range(ranks)]

    short_of = None

    @contextlib.contextmanager
    def without(what):
        # No more of it than there is now: shared memory comes to a rank as a file and a descriptor.
        if what == "files":
            kind, most = resource.RLIMIT_FSIZE, 0
        elif what == "descriptors":
            kind, most = resource.RLIMIT_NOFILE, os.dup(0)
            os.close(most)
        else:
            yield
            return
        before = resource.getrlimit(kind)
        resource.setrlimit(kind, (most, before[1]))
        yield
        resource.setrlimit(kind, before)

    def say(**what):
        with open(f"rank{rank}.json", "w") as file:
            json.dump(what, file)
"""
MEET = """
    met = meeting.Meeting(datetime.timedelta(seconds=60))
    with without(short_of):
        assert met.exchange(record(0)) == expected(0)
    for number in range(1, 50):
        assert met.exchange(record(number)) == expected(number)
    say(met=met.place)
    dist.barrier()
    dist.destroy_process_group()
"""


def told(folder: Path, ranks: int) -> list[dict]:
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


def boards() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("gradvane-")}


@pytest.mark.parametrize(("case", "before", "expected"), [
    ("all ranks are on one node", "", "node"),
    ("rank 2 is on another node", "if rank == 2: _native.this_node = lambda: 'another'", "nodes"),
    ("rank 1 is on another node", "if rank == 1: _native.this_node = lambda: 'another'", "nodes"),
    ("each is on a node of its own", "_native.this_node = lambda: f'{rank}'", "everywhere"),
    ("there is no shared memory on rank 0", "if rank == 0: short_of = 'files'", "everywhere"),
    ("rank 1 cannot join it", "if rank == 1: short_of = 'descriptors'", "everywhere"),
])
def test_all_ranks_choose_the_same_place_and_leave_nothing_there(tmp_path, case, before, expected):
    there = boards()
    running.ranks(3, running.write(tmp_path, BEGIN + "    " + before.lstrip() + "\n" + MEET), cwd=tmp_path)
    assert [one["met"] for one in told(tmp_path, 3)] == [expected] * 3, case
    assert boards() <= there


CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc"]
"""processes and shared memory of its own, and the network of the machine"""


def test_a_container_of_the_same_machine_is_a_node_of_its_own(tmp_path):
    if subprocess.run([*CONTAINER, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may make no namespaces")
    enter = """
    import os, sys
    if os.environ["RANK"] == "2" and "INSIDE" not in os.environ:
        os.environ["INSIDE"] = "1"
        into = ["sh", "-c", 'mount -t tmpfs shm /dev/shm && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp("unshare", [*%r, *into])
    """
    running.ranks(3, running.write(tmp_path, enter % CONTAINER + BEGIN + MEET), cwd=tmp_path)
    assert [one["met"] for one in told(tmp_path, 3)] == ["nodes"] * 3


@pytest.mark.parametrize("killed", [1, 2, 3])
def test_a_rank_that_was_killed_is_missed_on_the_other_node_too(tmp_path, killed):
    """2 leads the other node, 1 and 3 lead none."""
    done = running.ranks(4, running.write(tmp_path, BEGIN + f"""
    _native.this_node = lambda: str(rank // 2)
    met = meeting.Meeting(datetime.timedelta(minutes=10))
    for number in range(20):
        assert met.exchange(record(number)) == expected(number)
    if rank == {killed}:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        met.exchange(record(20))
    except RuntimeError as error:
        say(met=met.place, error=str(error))
    os._exit(0)
    """), cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == -9
    for rank in {0, 1, 2, 3} - {killed}:
        said = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert said["met"] == "nodes" and said["error"]


def test_a_rank_that_was_killed_is_missed_within_seconds_and_named(tmp_path):
    done = running.ranks(2, running.write(tmp_path, BEGIN + """
    met = meeting.Meeting(datetime.timedelta(minutes=10))
    met.exchange(record(0))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        met.exchange(record(1))
    except RuntimeError as error:
        say(error=str(error))
    os._exit(0)
    """), cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == -9
    (said,) = told(tmp_path, 1)
    assert said["error"] == "rank 1 has left"


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_it_may_take(tmp_path):
    running.ranks(2, running.write(tmp_path, BEGIN + """
    met = meeting.Meeting(datetime.timedelta(seconds=2))
    met.exchange(record(0))
    if rank == 0:
        began = time.monotonic()
        try:
            met.exchange(record(1))
        except RuntimeError as error:
            say(error=str(error), waited=time.monotonic() - began)
    dist.barrier()
    dist.destroy_process_group()
    """), cwd=tmp_path)
    (said,) = told(tmp_path, 1)
    assert said["error"] == "no word from a rank for 2 s" and said["waited"] >= 2


def test_ctrl_c_ends_the_wait(tmp_path):
    running.ranks(2, running.write(tmp_path, BEGIN + """
    met = meeting.Meeting(datetime.timedelta(minutes=10))
    met.exchange(record(0))
    if rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            met.exchange(record(1))
        except KeyboardInterrupt:
            say(ended=True)
    dist.barrier()
    dist.destroy_process_group()
    """), cwd=tmp_path)
    assert told(tmp_path, 1) == [{"ended": True}]


def test_a_rank_without_an_agent_is_missed_and_later_groups_of_the_program_work(tmp_path):
    """torch names a group by how many a process has made: one of ours would shift the names on the ranks that have it."""
    running.ranks(3, running.write(tmp_path, BEGIN + """
    error = None
    if rank > 0:
        try:
            meeting.Meeting(datetime.timedelta(seconds=3)).exchange(record(0))
        except RuntimeError as caught:
            error = str(caught)
    dist.barrier()
    pair = dist.new_group([1, 2], timeout=datetime.timedelta(seconds=30))
    whole = dist.new_group(timeout=datetime.timedelta(seconds=30))
    total = torch.tensor([rank])
    dist.all_reduce(total, group=whole)
    if rank > 0:
        dist.all_reduce(total, group=pair)
    say(error=error, total=int(total))
    dist.destroy_process_group()
    """), cwd=tmp_path)
    said = told(tmp_path, 3)
    assert [one["total"] for one in said] == [3, 6, 6]
    assert said[0]["error"] is None and said[1]["error"] and said[2]["error"]


@pytest.mark.parametrize(("of_the_program", "expected"), [(40, 20), (1800, 600)])
def test_the_agreement_gives_up_before_a_collective_of_the_program_does(tmp_path, of_the_program, expected):
    begin = BEGIN.replace('init_process_group("gloo")', f'init_process_group("gloo", timeout=datetime.timedelta(seconds={of_the_program}))')
    running.ranks(1, running.write(tmp_path, begin + """
    from gradvane._ranks.agreement import patience_of
    say(patience=patience_of(dist.group.WORLD).total_seconds())
    dist.destroy_process_group()
    """), cwd=tmp_path)
    assert told(tmp_path, 1) == [{"patience": expected}]


def test_the_tables_of_large_runs_are_those_of_the_model():
    root = running.TESTS.parents[1]
    page = (root / "docs" / "scale.md").read_text()
    assert running.python(root / "bench" / "python" / "exchange_model.py", cwd=root, is_cold=True).stdout in page
