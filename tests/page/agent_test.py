"""The page during real runs, served by the agent itself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import TABS
from playwright.sync_api import expect

sys.path.insert(0, str(Path(__file__).parents[1] / "warm"))

import pythons  # noqa: E402

TRAINING = Path(__file__).with_name("training.py")
PACKAGE = Path(os.environ.get("GRADVANE_BUILD_DIR", TRAINING.parents[2] / "build" / "release")) / "python"
CULPRIT = "layer2.0.weight"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE_")}
    # What the agent costs beside other tests is not looked at here.
    return {**kept, "PYTHONPATH": pythons.search_path(PACKAGE), "OMP_NUM_THREADS": "1", "GRADVANE_DETECT": "default,-agent_cost", **more}


class Training:
    """`gradvane run training.py` in a folder of its own."""

    def __init__(self, folder: Path, parameters: int = 0, port: int = 0, start_step: int = 0, rank: int = 0,
                 ranks: int = 1, options: dict[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        endpoint = folder / f"endpoint.rank{rank}.json"
        endpoint.unlink(missing_ok=True)
        of_several = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "GRADVANE_RUN_ID": "one"}
        self.process = pythons.Process(
            ["-m", "gradvane", "run", str(TRAINING), str(folder), str(parameters)], cwd=folder,
            env=environment(GRADVANE_RUN="shown", GRADVANE_RUN_DIR=str(folder), GRADVANE_PORT=str(port),
                            GRADVANE_START_STEP=str(start_step), **(of_several if ranks > 1 else {}), **(options or {})))
        self.address = str(json.loads(self._wait_for(endpoint))["url"])

    def _wait_for(self, path: Path) -> str:
        deadline = time.monotonic() + 90
        while not path.exists():
            assert self.process.poll() is None and time.monotonic() < deadline, "the training did not start"
            time.sleep(0.05)
        return path.read_text()

    def poison(self, how: str = "once") -> None:
        part = self.folder / "poison.part"
        part.write_text(how)
        part.rename(self.folder / "poison")

    def heal(self) -> None:
        (self.folder / "poison").unlink()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)

    def end(self) -> None:
        (self.folder / "stop").touch()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    started: list[Training] = []

    def start(**how) -> Training:
        started.append(Training(tmp_path / "run", **how))
        return started[-1]

    yield start
    for training in started:
        training.kill()


def test_every_view_of_a_real_run_is_filled_quiet_and_accessible(train, window, axe):
    training = train()
    page = window()
    page.open(training.address)
    page.wait_for_steps(100)
    page.wait_for_link("live")
    assert page.sentence == "Healthy"
    for title in ("Loss", "Gradient norm", "Learning rate", "Update / weight", "Weight norm"):
        page.pixels(page.chart(title), {"--line": 100})
    for tab in TABS:
        page.open(training.address, f"/{tab}")
        page.page.wait_for_timeout(1000)
        page.check_accessible(axe)
    assert "layer2" in page.page.request.get(f"{training.address}/api/v1/heatmap").text()
    page.check_quiet(training.address)


def test_nan_is_told_within_seconds_and_where_it_was(train, window):
    training = train()
    page = window()
    page.open(training.address)
    page.wait_for_steps(50)
    assert page.sentence == "Healthy"
    training.poison("on")
    page.wait_for_sentence("NaN since step", seconds=20)
    assert page.sentence.endswith(CULPRIT)
    time.sleep(1)
    training.heal()
    page.pixels(page.chart("Gradient norm"), {"--bad": 20})
    page.open(training.address, "/incidents")
    page.page.get_by_text(CULPRIT).first.wait_for()
    page.open(training.address, "/parameters")
    expect(page.page.locator("tbody a").first).to_have_text(CULPRIT)
    page.check_quiet(training.address)


def test_a_rollback_is_marked_on_the_charts_and_both_snapshots_are_told_with_their_ages(train, window):
    training = train(options={"GRADVANE_ON_NONFINITE": "rollback", "GRADVANE_SNAPSHOT_EVERY": "20"})
    page = window()
    page.open(training.address)
    page.wait_for_steps(60)
    snapshots = page.page.locator(".tile", has_text="Newest snapshot")
    expect(snapshots).to_contain_text(re.compile(r"step \d+.* old, before it step \d+, .* old"))
    expect(snapshots).not_to_contain_text("rollback")
    training.poison("trusted")
    expect(snapshots).to_contain_text("1 rollback")
    status = page.page.request.get(f"{training.address}/api/v1/status").json()
    assert status["governor"]["rollbacks"] == {"nonfinite": 1} and status["skipped_steps"] == 1
    page.pixels(page.chart("Loss"), {"--warn": 20})
    step = next(one["first_step"] for one in status["incidents"] if one["class"] == "rollback")
    # Steps around it alone: a chart that goes on moves under the cursor.
    page.open(training.address, f"/overview?from={step - 5}&to={step}")
    page.cursor("Loss")
    page.page.keyboard.press("End")
    at = page.chart("Loss").locator(".at")
    expect(at).to_have_text(re.compile(rf"^step {step:,} · skipped · .*Rolled back"))
    page.check_quiet(training.address)


def test_after_a_crash_and_a_restart_on_the_same_port_the_new_run_is_shown(train, window):
    port = free_port()
    first = train(port=port, start_step=1_000_000)
    page = window()
    page.open(first.address)
    page.wait_for_steps(1_000_060)
    seen = page.step_shown
    first.kill()
    page.wait_for_link("lost", seconds=20)
    assert page.step_shown >= seen
    second = train(port=port)
    assert second.address == first.address
    page.wait_for_steps_below(1_000_000)
    page.wait_for_link("live", seconds=30)
    page.wait_for_steps(50)


def test_the_steps_of_a_resumed_run_arrive_and_none_twice(train, window):
    training = train(start_step=1_000_000)
    page = window()
    page.open(training.address)
    page.wait_for_steps(1_000_050)
    page.wait_for_link("live")
    seen = page.step_shown
    page.wait_for_steps(seen + 100)
    lines = page.download("Export CSV").splitlines()
    steps = [int(line.split(",")[0]) for line in lines[1:]]
    assert steps == list(range(1_000_001, 1_000_001 + len(steps))) and len(steps) > 100
    page.check_quiet(training.address)


def test_a_run_that_ends_says_so_and_stays_to_be_read(train, window):
    training = train()
    page = window()
    page.open(training.address)
    page.wait_for_steps(50)
    training.end()
    page.wait_for_sentence("Finished", seconds=20)
    assert page.step_shown >= 50


def test_ten_thousand_parameters_scroll_and_are_found(train, window):
    training = train(parameters=10_000)
    page = window()
    page.open(training.address, "/parameters?sort=index")
    page.page.get_by_text("10,000 parameters").wait_for(timeout=60_000)
    page.page.locator("tbody a").first.wait_for(timeout=60_000)
    assert page.longest_task_of(page.scroll_table_through) < 100
    page.page.get_by_text("9999.weight", exact=True).wait_for(timeout=20_000)
    page.page.get_by_role("searchbox").fill("7777.")
    page.page.get_by_text("1 of 10,000 parameters").wait_for(timeout=20_000)
    page.page.get_by_text("7777.weight", exact=True).wait_for(timeout=20_000)
    assert page.page.locator("tbody a").all_inner_texts() == ["7777.weight"]
    page.check_quiet(training.address)


def test_without_scripts_there_is_the_plain_page(train, window):
    training = train()
    page = window(scripts=False)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        page.page.goto(training.address)
        if page.page.locator("#plain .tile").count() == 6 and page.sentence == "Healthy":
            break
        time.sleep(0.2)
    assert page.page.locator("#plain .run").inner_text() == "shown"
    assert page.sentence == "Healthy"
    loss = page.page.locator(".tile", has_text="Loss").locator("dd").first.inner_text()
    assert float(loss.replace("−", "-")) > 0  # the page writes a real minus: 3e−5
    assert page.page.locator("#app").inner_text() == ""
    page.check_quiet(training.address)


def test_a_recording_opens_in_the_same_page(train, window, tmp_path):
    training = train()
    page = window()
    page.open(training.address)
    page.wait_for_steps(80)
    training.poison("on")  # else it may be over before the page looks
    page.wait_for_sentence("NaN", seconds=20)
    training.heal()
    page.wait_for_steps(page.step_shown + 20)  # at the edge of a chart half of the mark is cut off
    training.kill()
    [ring] = training.folder.glob("*.ring.gvrec")
    replay = subprocess.Popen([sys.executable, "-B", "-m", "gradvane", "replay", "--serve", "--port", "0", ring],
                              env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        address = replay.stdout.readline().strip()
        shown = window()
        shown.open(address)
        expect(shown.page.locator("body")).to_contain_text(f"This is a recording: {ring.name}")
        shown.pixels(shown.chart("Gradient norm"), {"--line": 100, "--bad": 20})
        shown.open(address, "/layers")
        shown.page.locator(".heat-rows canvas").wait_for()
        shown.open(address, "/incidents")
        shown.page.get_by_text(CULPRIT).first.wait_for()
        shown.check_quiet(address)
    finally:
        replay.send_signal(signal.SIGINT)
        assert replay.wait(timeout=20) == 0


def test_one_address_has_the_page_of_each_rank(train, window, axe):
    first, second = train(rank=0, ranks=2), train(rank=1, ranks=2)
    port = first.address.removesuffix("/rank/0")
    assert second.address == f"{port}/rank/1"
    page = window()
    page.open(port)
    page.wait_for_steps(50)
    page.wait_for_link("live")
    page.open(port, "/ranks")
    page.page.get_by_role("link", name="/rank/1").click()
    page.page.wait_for_url(f"{second.address}/")
    page.wait_for_steps(50)
    page.wait_for_link("live")
    page.pixels(page.chart("Loss"), {"--line": 50})
    page.open(second.address, "/ranks")
    page.check_accessible(axe)
    page.page.get_by_role("link", name="/rank/0").click()
    page.page.wait_for_url(f"{first.address}/")
    page.wait_for_steps(50)
    page.open(second.address)
    page.wait_for_link("live")
    seen = page.step_shown
    first.kill()  # it served the port: the page of the other rank goes on by itself
    page.wait_for_steps(seen + 300)
    page.wait_for_link("live", seconds=30)
    page.open(port)
    page.wait_for_steps(seen)
