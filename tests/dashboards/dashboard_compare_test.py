"""The dashboard that compares runs, in a real Prometheus with two runs whose numbers are known: its two queries are
joined as Grafana's transformations join them, and each curve is a function of the step."""

from __future__ import annotations

import copy
import math
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from board_check.asking import Asker  # noqa: E402
from board_check.backfill import KnownPrometheus  # noqa: E402
from board_check.boards import load, panels  # noqa: E402
from board_check.expansion import ALL, Window, chosen  # noqa: E402
from board_check.joined import curves  # noqa: E402
from board_check.known_run import BEGIN, END, RUN, SLOW, STARTED, TUNED, TUNED_BEGAN, TWO, loss  # noqa: E402

(BOARD,) = [board for board in load(ROOT / "dashboards" / "grafana") if board["uid"] == "gradvane-compare"]
CHARTS = {panel["title"]: panel for panel in panels(BOARD) if panel["type"] == "xychart"}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    with KnownPrometheus(Path(os.environ["GRADVANE_SERVERS_DIR"]), tmp_path_factory.mktemp("known")) as there:
        yield there


def asker_of(known, *runs: str) -> Asker:
    values = {name: chosen([ALL]) for name in ("job", "rank", "instance")} | dict.fromkeys(("cluster", "namespace"), ".*")
    return Asker(known.url, Window(BEGIN, END), {**values, "run": chosen(list(runs))})


@pytest.fixture(scope="module")
def both(known):
    asker = asker_of(known, RUN, TUNED)
    return {title: curves(asker, panel) for title, panel in CHARTS.items()}


def test_each_chart_has_a_curve_for_each_run_and_no_point_without_a_step(both):
    assert len(both) == 6
    for title, found in both.items():
        assert set(found) == {RUN, TUNED}, title
        for curve in found.values():
            assert len(curve.points) > 90 and curve.alone == 0, title
            assert [x for x, _ in curve.points] == sorted(x for x, _ in curve.points), title


@pytest.mark.parametrize("title, number", [
    ("Loss by step", lambda step: 1.7 + 7.8 * math.exp(-step / 900)),
    ("Gradient norm by step", lambda step: 0.3 + 0.9 * math.exp(-step / 1200)),
    ("Learning rate by step", lambda step: 3e-4),
    ("Update ratio by step", lambda step: 6e-4 + 8e-4 * math.exp(-step / 1500)),
    ("Step time by step", lambda step: 0.25),
    ("Tokens per second by step", lambda step: 4 * 4096),
])
def test_the_curve_of_a_run_is_the_known_function_of_its_step(both, title, number):
    points = both[title][TUNED].points
    assert points[-1][0] == 4 * (END - BEGIN - STARTED - TUNED_BEGAN) > 5000
    # The rate of a counter that has just begun is too low until its window is full.
    whole = points[4:] if "second" in title else points
    for step, value in whole:
        assert value == pytest.approx(number(step), rel=1e-6)


def test_runs_that_were_not_at_the_same_time_are_compared_at_the_same_step(both):
    """The tuned run begins five minutes later and makes steps twice as fast: by time, the curves would be apart."""
    mine, other = (dict(both["Loss by step"][run].points) for run in (RUN, TUNED))
    (shared,) = set(mine) & set(other) & {600.0}
    assert other[shared] == pytest.approx(1.7 + 7.8 * math.exp(-600 / 900))
    at_step = 600 / 2
    assert at_step < SLOW
    assert mine[shared] == pytest.approx(sum(loss(rank)(at_step) for rank in range(4)) / 4)
    # By time: the tuned run makes its step 600 at another time.
    assert TUNED_BEGAN + 600 / 4 != at_step


def test_optimizers_of_a_run_are_curves_of_their_own(known):
    asker = asker_of(known, TWO, TUNED)
    panel = CHARTS["Loss by step"]
    whose = {series.labels["whose"] for series in asker.ask(panel["targets"][1]["expr"], now=False).series}
    assert whose == {f"{TWO}, optimizer 0", f"{TWO}, optimizer 1", TUNED}
    # That run publishes no step, so nothing is drawn of it: an XY chart would put it at step 0.
    assert set(curves(asker, panel)) == {TUNED}


def test_the_table_has_a_row_for_each_run(known):
    asker = asker_of(known, RUN, TUNED)
    (table,) = [panel for panel in panels(BOARD) if panel["type"] == "table"]
    rows = [{series.labels["run"]: series.last for series in asker.ask(target["expr"], now=True).series}
            for target in table["targets"]]
    assert all(set(row) == {RUN, TUNED} for row in rows)
    steps, ranks, losses, norms, rates, times, incidents = (row[TUNED] for row in rows)
    assert (ranks, incidents) == (1, 1) and rates == 3e-4
    assert losses == pytest.approx(1.7 + 7.8 * math.exp(-steps / 900))
    assert norms == pytest.approx(0.3 + 0.9 * math.exp(-steps / 1200))
    assert times == pytest.approx(0.25)


def test_a_point_without_a_step_would_be_seen(known):
    """Step times need two scrapes and steps need one: without the rule of curves.py, one point would stand alone."""
    panel = copy.deepcopy(CHARTS["Step time by step"])
    panel["targets"][0]["expr"] = 'max by (whose) (label_replace(gradvane_run_step{run=~"$run"}, "whose", "$1", "run", "(.*)"))'
    assert curves(asker_of(known, TUNED), panel)[TUNED].alone > 0


def test_a_run_that_was_not_chosen_has_no_curve(known):
    for title, panel in CHARTS.items():
        assert set(curves(asker_of(known, TUNED), panel)) == {TUNED}, title
