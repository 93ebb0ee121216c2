"""The Fleet board with a hundred ranks, in a real Prometheus: a few lines on each chart, and the ranks that differ among
them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from board_check.asking import Asker  # noqa: E402
from board_check.backfill import KnownPrometheus  # noqa: E402
from board_check.boards import load, targets  # noqa: E402
from board_check.expansion import ALL, Window, chosen  # noqa: E402
from board_check.known_run import BEGIN, END  # noqa: E402
from board_check.known_shapes import Known, between, flat  # noqa: E402

RANKS = 100
LINES = 12
SLOW, ALWAYS, STUCK, NEVER, APART = 71, 13, 42, 8, 5
"""Ranks: 71 is slow for five minutes in the middle and waits for nobody then, 13 is a little slower all the time, 42 makes
no step in the last five minutes, 8 makes none at all, and 5 has a loss of its own."""
HELD_UP = 60, 120
"""All of them are slow then, by chance the one or the other more."""
NOT_HERE = {"Blocked in host syncs", "Weight norm of each rank", "Device memory of each rank", "Tokens per second"}
"""Charts of what these processes do not publish."""
MIDDLE = 600, 900
LAST = 1440
FLEET = next(board for board in load(ROOT / "dashboards" / "grafana") if board["uid"] == "gradvane-fleet")
CHARTS = {target.panel: target for target in targets(FLEET) if not target.now and target.ref == "A"}


def step_seconds(rank: int):
    """A counter's course, at two steps a second."""
    usual = 0.4 + rank * 1e-4 + (0.1 if rank == ALWAYS else 0)
    held_up = between(*HELD_UP, 3.0 + rank * 0.01)
    slow = slowed(2 * usual, 2 * (usual + 0.3) if rank == SLOW else 2 * usual)
    return lambda t: slow(t) + held_up(t)


def slowed(usual: float, then: float):
    """A counter's course: `usual` a second, and `then` in the middle."""
    before, within, after = between(0, MIDDLE[0], usual), between(*MIDDLE, then), between(MIDDLE[1], END - BEGIN, usual)
    return lambda t: before(t) + within(t) + after(t)


def of_rank(rank: int) -> list[Known]:
    labels = {"job": "training", "run": "large", "rank": str(rank), "instance": f"node-{rank // 8}:{9464 + rank % 8}"}
    # A little different from rank to rank, so that which ones are furthest up is no matter of chance.
    is_slow = rank == SLOW
    steps = between(0, LAST if rank == STUCK else END - BEGIN, 2.0)
    if rank == NEVER:
        return [Known("up", {"job": labels["job"], "instance": labels["instance"]}, flat(1)),
                Known("gradvane_run_info", labels, flat(1)),
                Known("gradvane_run_state", {**labels, "state": "starting"}, flat(1))]
    return [
        Known("up", {"job": labels["job"], "instance": labels["instance"]}, flat(1)),
        Known("gradvane_run_info", labels, flat(1)),
        Known("gradvane_run_state", {**labels, "state": "running"}, flat(1)),
        Known("gradvane_run_step", labels, steps),
        Known("gradvane_steps_total", labels, steps),
        Known("gradvane_step_duration_seconds_count", labels, between(0, END - BEGIN, 2.0)),
        Known("gradvane_step_duration_seconds_sum", labels, step_seconds(rank)),
        Known("gradvane_phase_seconds_total", {**labels, "phase": "data"}, slowed(0.1, 0.5 if is_slow else 0.1 + rank * 1e-5)),
        Known("gradvane_rank_wait_seconds_total", labels, slowed(0.2 + rank * 1e-4, 0.0 if is_slow else 0.2 + rank * 1e-4)),
        Known("gradvane_loss", labels, flat(1.0 if rank == APART else 2.0 + rank * 1e-4)),
        # Of two optimizers, and of one of them all norms are larger.
        Known("gradvane_grad_norm", {**labels, "optimizer": "0"}, flat(50 + rank % 7)),
        Known("gradvane_grad_norm", {**labels, "optimizer": "1"}, flat(0.5 if rank == APART else 0.1)),
        Known("gradvane_process_resident_memory_bytes", labels, flat(1e9 + rank)),
    ]


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    values = {name: chosen([ALL]) for name in ("job", "rank", "instance", "group")}
    places = dict.fromkeys(("cluster", "namespace"), chosen([ALL], ".*"))
    known = [each for rank in range(RANKS) for each in of_rank(rank)]
    with KnownPrometheus(Path(os.environ["GRADVANE_SERVERS_DIR"]), tmp_path_factory.mktemp("fleet"), known) as there:
        yield Asker(there.url, Window(BEGIN, END), {**places, **values, "run": chosen("large", is_multi=False)})


@pytest.mark.parametrize("panel, rank", [
    ("Step time of each rank", SLOW), ("Step time of each rank", ALWAYS), ("Data phase of each rank", SLOW), ("Waiting for other ranks", SLOW),
    ("Behind the median rank", SLOW), ("Steps behind the first", STUCK), ("State of each rank", STUCK),
    ("State of each rank", NEVER), ("Loss of each rank", APART), ("Resident memory of each rank", RANKS - 1),
])
def test_a_chart_has_few_lines_and_the_rank_that_differs_is_one(asker, panel, rank):
    found = [series.labels["rank"] for series in asker.ask_target(CHARTS[panel]).series]
    assert str(rank) in found
    assert len(set(found)) == len(found) == LINES


def test_a_line_is_whole_also_where_its_rank_does_not_differ(asker):
    (line,) = [series for series in asker.ask_target(CHARTS["Step time of each rank"]).series
               if series.labels["rank"] == str(SLOW)]
    assert line.at(BEGIN + 60 + 540) == pytest.approx(0.4 + SLOW * 1e-4)
    assert line.at(BEGIN + 60 + MIDDLE[1]) == pytest.approx(0.7 + SLOW * 1e-4)


def test_the_median_is_that_of_all_ranks(asker):
    (median,) = [target for target in targets(FLEET) if (target.panel, target.ref) == ("Step time of each rank", "B")]
    assert asker.ask_target(median).only().last == pytest.approx(0.4 + (RANKS - 1) / 2 * 1e-4, abs=2e-4)


def test_each_optimizer_has_its_own_ranks(asker):
    found = {(series.labels["optimizer"], series.labels["rank"])
             for series in asker.ask_target(CHARTS["Gradient norm of each rank"]).series}
    assert ("1", str(APART)) in found
    assert len(found) == 2 * LINES


def test_targets_are_few_too(asker):
    assert len(asker.ask_target(CHARTS["Scrapes that answered"]).series) == LINES


def test_no_chart_of_the_board_has_a_line_for_each_rank(asker):
    counts = {panel: len(asker.ask_target(target).series) for panel, target in CHARTS.items()}
    assert {panel for panel, count in counts.items() if count == 0} == NOT_HERE
    assert {panel: count for panel, count in counts.items() if count > LINES} == {"Gradient norm of each rank": 2 * LINES}
