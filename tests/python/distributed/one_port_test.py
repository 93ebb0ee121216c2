"""The ranks of one machine share one port: one of them serves it, and another takes over when that one dies."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import running
from prometheus_server import SERVERS, Prometheus

from gradvane.cli import live_runs

RANKS = 4
TRAIN = """
    import os, sys, torch
    torch.manual_seed(int(os.environ["RANK"]))
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3 + int(os.environ["RANK"])):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    if "--fork" in sys.argv and os.fork() == 0:
        sys.stdin.readline()  # as the worker of a data loader, which may outlive the rank
        os._exit(0)
    print("trained", flush=True)
    sys.stdin.readline()
"""


class Rank:
    def __init__(self, folder, number, *words, count=RANKS, run_id="one", **environment):
        self.number = number
        self.process = running.start(
            "-m", "gradvane", "run", "--linger-seconds", "0", "train.py", *words, cwd=folder, TMPDIR=str(folder), RANK=str(number),
            LOCAL_RANK=str(number), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), GRADVANE_RUN_ID=run_id, **environment)

    def wait_until_trained(self):
        line = self.process.stdout.readline()
        assert line == "trained\n", self.process.communicate()[1]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        return self.process.communicate("\n", timeout=60)[1]


@pytest.fixture
def start(tmp_path):
    """Starts ranks, which end with the test, and waits until they have trained."""
    running.write(tmp_path, TRAIN)
    started = []

    def start(numbers, *words, **environment):
        ranks = [Rank(tmp_path, number, *words, **environment) for number in numbers]
        started.extend(ranks)
        for rank in ranks:
            rank.wait_until_trained()
        return ranks

    yield start
    for rank in started:
        with contextlib.suppress(OSError, ValueError):
            rank.process.kill()
            rank.process.communicate()


def entries(folder):
    return [json.loads(path.read_text()) for path in folder.glob("gradvane-*/*/endpoint.rank*.json")]


def endpoints(folder):
    return {entry["rank"]: entry for entry in entries(folder)}


def node_url(folder):
    urls = {entry["node_url"] for entry in entries(folder)}
    assert len(urls) == 1
    return urls.pop()


def serving_rank(folder):
    (file,) = folder.glob("gradvane-*/*/node.*.json")
    pid = json.loads(file.read_text())["pid"]
    return next(entry["rank"] for entry in entries(folder) if entry["pid"] == pid)


def read(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def ranks_in(exposition):
    return {int(rank): float(steps)
            for rank, steps in re.findall(r'^gradvane_steps_total\{.*rank="(\d+)".*\} (\S+)$', exposition, re.MULTILINE)}


def wait_for_steps(url, is_all, seconds=10):
    """Two scrapes, as Prometheus is told to scrape in docs/prometheus.md. Steps by rank, once `is_all` holds for them."""
    end = time.monotonic() + seconds
    steps = None
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            steps = ranks_in(read(f"{url}/metrics"))
            if is_all(steps):
                return
        time.sleep(0.05)
    raise AssertionError(f"steps in /metrics by rank: {steps}")


def wait_for_ranks(url, wanted, seconds=10):
    wait_for_steps(url, lambda steps: set(steps) == set(wanted), seconds)


def test_one_address_has_the_series_the_page_and_the_api_of_all_ranks_that_answer(tmp_path, start, monkeypatch):
    ranks = start(range(RANKS))
    url = node_url(tmp_path)
    wait_for_steps(url, lambda steps: steps == {0: 3, 1: 4, 2: 5, 3: 6})
    for rank, entry in endpoints(tmp_path).items():
        assert entry["url"] == f"{url}/rank/{rank}"
        assert json.loads(read(f"{entry['url']}/api/v1/status"))["rank"] == rank
        assert set(ranks_in(read(f"{entry['url']}/metrics"))) == {rank}
        assert "<html" in read(f"{entry['url']}/")
    assert json.loads(read(f"{url}/api/v1/status"))["rank"] == 0
    assert [entry["rank"] for entry in json.loads(read(f"{url}/api/v1/ranks"))["ranks"]] == [0, 1, 2, 3]

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert [entry.rank for entry in live_runs.live_runs()] == [0, 1, 2, 3]
    (target,) = targets()
    assert target["targets"] == [url.removeprefix("http://")]
    assert target["labels"]["__meta_gradvane_rank"] == "0" and target["labels"]["__meta_gradvane_world_size"] == "4"
    checked = subprocess.run([SERVERS / "promtool", "check", "metrics"], input=read(f"{url}/metrics"),
                             capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")

    stopped = next(rank for rank in ranks if rank.number != serving_rank(tmp_path))
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        wait_for_ranks(url, {0, 1, 2, 3} - {stopped.number})
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    wait_for_ranks(url, {0, 1, 2, 3}, seconds=30)

    said = [rank.end() for rank in ranks]
    assert f"{url}, run directory" in said[0]
    assert all("run directory" not in text for text in said[1:]), "the address is said once"


def targets():
    done = running.python("-m", "gradvane", "sd", cwd=os.getcwd(), TMPDIR=os.environ["TMPDIR"])
    return json.loads(done.stdout)


def test_ranks_that_are_killed_take_no_other_rank_along_the_serving_one_included(tmp_path, start):
    """Each has a forked child that lives on, as the worker of a data loader may."""
    ranks = start(range(RANKS), "--fork")
    url = node_url(tmp_path)
    left = dict(enumerate(ranks))
    with Prometheus(tmp_path, url.removeprefix("http://")) as prometheus:
        for rank in left:
            prometheus.wait_for_samples(rank, 2)
        victim = serving_rank(tmp_path)
        left.pop(victim).kill()
        killed = time.time()
        for rank in left:
            prometheus.wait_for_samples(rank, 2, after=killed)
            times = prometheus.times(rank)
            gaps = [after - before for before, after in zip(times, times[1:])]
            assert max(gaps) <= 3 * prometheus.EVERY + 0.5, f"more than two scrapes lost: {gaps}"
        assert not [when for when in prometheus.times(victim) if when > killed + 0.5]
    while len(left) > 1:
        left.pop(serving_rank(tmp_path)).kill()
        wait_for_ranks(url, left)
    (last,) = left.values()
    assert f"now serves {url}" in last.end()


def test_another_run_on_the_same_port_and_name_has_an_address_of_its_own(tmp_path, start):
    port = "9811"
    start(range(2), count=2, GRADVANE_PORT=port)
    first = node_url(tmp_path)
    start(range(2), count=2, GRADVANE_PORT=port, run_id="two")
    urls = {entry["node_url"] for entry in entries(tmp_path)}
    assert first in urls and len(urls) == 2
    for url in urls:
        assert set(ranks_in(read(f"{url}/metrics"))) == {0, 1}


def test_each_rank_has_a_port_of_its_own_if_that_is_wanted(tmp_path, start):
    start(range(2), count=2, GRADVANE_SHARE_PORT="off")
    found = endpoints(tmp_path)
    assert found[0]["url"] != found[1]["url"]
    for rank, entry in found.items():
        assert entry["node_url"] == entry["url"]
        assert set(ranks_in(read(f"{entry['url']}/metrics"))) == {rank}
    assert not list(tmp_path.glob("gradvane-*/*/node.*"))
