"""Every query of every dashboard, with its variables as Grafana sets them, in a real Prometheus that holds a run
whose numbers are known."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))

from board_check import preview  # noqa: E402
from board_check.asking import Answer, Asker  # noqa: E402
from board_check.backfill import KnownPrometheus, openmetrics  # noqa: E402
from board_check.boards import Target, events, load, panels, targets, variables  # noqa: E402
from board_check.expansion import ALL, Window, chosen, expanded  # noqa: E402
from board_check.known_run import ATTEMPT, BAD, BEGIN, END, GROUPS, RUN, STARTED, TUNED, TWO, UUID  # noqa: E402
from board_rules import without_overlap  # noqa: E402
from catalogue import FROM_SCRAPING, catalogue  # noqa: E402

BOARDS = load(ROOT / "dashboards" / "grafana")
OVERVIEW = next(board for board in BOARDS if board["uid"] == "gradvane-overview")
TARGETS = [target for board in BOARDS for target in targets(board)]
MOST_SERIES = 60
"""of one query, over 4 ranks and 11 groups"""
EVERYTHING = {"job": [ALL], "rank": [ALL], "instance": [ALL], "group": [ALL]}


def values_of(**picked: list[str]) -> dict[str, str]:
    values = {name: chosen(value) for name, value in {**EVERYTHING, **picked}.items() if name != "topk"}
    places = dict.fromkeys(("cluster", "namespace"), chosen([ALL], ".*"))
    return {**places, **values, "run": chosen(RUN, is_multi=False), "topk": picked.get("topk", ["10"])[0]}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    programs = Path(os.environ["GRADVANE_SERVERS_DIR"])
    with KnownPrometheus(programs, tmp_path_factory.mktemp("known")) as there:
        yield there


@pytest.fixture(scope="module")
def asker(known):
    return Asker(known.url, Window(BEGIN, END), values_of())


def target_of(board: str, panel: str, ref: str = "A") -> Target:
    (found,) = [each for each in TARGETS if (each.board, each.panel, each.ref) == (f"gradvane-{board}", panel, ref)]
    return found


def complaints(answer: Answer, legend: str) -> list[str]:
    """What would be wrong on the panel."""
    wrong = [f"status {answer.status}"] if answer.status != 200 else []
    wrong += [answer.said] if answer.said else []
    wrong += [] if answer.series else ["no data"]
    wrong += ["too many series"] if len(answer.series) > MOST_SERIES else []
    names = set()
    for series in answer.series:
        wrong += [f"no label {label}" for label in re.findall(r"\{\{(\w+)\}\}", legend) if label not in series.labels]
        names.add(re.sub(r"\{\{(\w+)\}\}", lambda match: series.labels.get(match[1], ""), legend))
        wrong += [f"{series.labels} has no number" for _, value in series.points[:1] if value != value]
    if legend and len(names) != len(answer.series):
        wrong.append("series of the same name")
    return wrong


# Queries that may have no data on the known run, and why. None at present.
MAY_BE_EMPTY: dict[str, str] = {}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_query_has_data_and_what_its_legend_names(asker, target):
    found = complaints(asker.ask_target(target), target.legend)
    assert found == (["no data"] if target.name in MAY_BE_EMPTY else [])


@pytest.mark.parametrize("query, legend, wrong", [
    ("sum(rate(gradvane_steps_total)", "", "status 400"),
    ('gradvane_nonsense{run="$run"}', "", "no data"),
    ('gradvane_run_state{run="$run"}', "{{phase}}", "no label phase"),
    ('gradvane_run_state{run="$run"}', "{{rank}}", "series of the same name"),
    ('gradvane_nonfinite_steps_total{run="$run"}', "", "too many series"),
    ('gradvane_loss{run="$run"} * NaN', "", "has no number"),
])
def test_a_query_that_is_wrong_is_seen(asker, query, legend, wrong):
    assert any(wrong in each for each in complaints(asker.ask(query, now=False), legend))


def test_a_variable_that_is_not_there_is_seen():
    with pytest.raises(KeyError, match="nothing"):
        expanded("up{a=\"$nothing\"}", Window(0, 60), {})


def at(minute: float) -> float:
    return BEGIN + 60 * minute


FOUR = ["0", "1", "2", "3"]
# (dashboard, panel, query, labels, minute, value). Rates are those of the story in known_run.py.
NUMBERS = [
    ("overview", "Ranks by state", "A", {"state": "running"}, 30, 4),
    ("overview", "Ranks that report", "A", {"ranks": "all of them"}, 30, 4),
    ("fleet", "Ranks that report", "A", {"ranks": "all of them"}, 30, 4),
    ("overview", "Step", "A", {}, 30, 2 * 1140 + 1.6 * 600),
    ("overview", "Steps per second", "A", {}, 10, 2.0),
    ("overview", "Steps per second", "A", {}, 30, 1.6),
    ("overview", "Open incidents", "A", {}, 30, 3),
    ("overview", "Since the last step", "A", {}, 30, 0),
    ("overview", "Gradient norm", "B", {}, 30, 1.0),
    ("overview", "Where values were not finite", "A", {"site": "grad"}, 12, 0),
    ("overview", "Where values were not finite", "A", {"site": "grad"}, 13.5, 1),
    ("overview", "Where values were not finite", "A", {"site": "loss"}, 13.75, 1),
    ("overview", "Where values were not finite", "A", {"site": "loss"}, 16, 0),
    ("overview", "Step time", "A", {}, 10, 0.2 + 0.3 * 0.5 / 0.9),
    ("overview", "Step time", "A", {}, 30, 0.5 + 0.5 * (0.5 - 0.4) / 0.6),
    ("overview", "Phases of a step", "A", {"phase": "data"}, 10, 0.05),
    ("overview", "Phases of a step", "A", {"phase": "data"}, 30, (3 * 0.05 + 0.175) / 4),
    ("overview", "Tokens and samples a second", "A", {}, 10, 4 * 2 * 8192),
    ("overview", "Tokens and samples a second", "B", {}, 30, 4 * 1.6 * 8),
    ("overview", "Backward passes per step", "A", {"rank": "2"}, 30, 2),
    ("overview", "Share of the step time", "A", {"rank": "1"}, 30, 0.004),
    ("overview", "Gradvane's time by part", "A", {"where": "worker"}, 30, 0.021),
    ("overview", "Time to write a scrape", "A", {"rank": "0"}, 30, 0.003),
    ("overview", "Processes", "A", {"rank": "3"}, 30, (BEGIN + STARTED) * 1000),
    ("overview", "Ranks by attempt", "A", {"run_id": ATTEMPT}, 30, 4),
    ("overview", "Model FLOPs utilization", "A", {"rank": "2"}, 10, 0.42),
    ("overview", "Model FLOPs utilization", "A", {"rank": "2"}, 30, 0.336),
    ("overview", "Device memory", "C", {"rank": "1"}, 30, 41.2e9),
    ("overview", "Allocations retried and failed", "A", {"rank": "1"}, 15.25, 1),
    ("overview", "Allocations retried and failed", "A", {"rank": "1"}, 18, 0),
    ("overview", "Devices", "A", {"rank": "3", "uuid": UUID + "3"}, 30, 1),
    ("gradients", "Parameters by their gradient", "A", {"state": "nonfinite"}, 13.5, 40),
    ("gradients", "Parameters that vanish and explode", "B", {}, 30, 6),
    ("gradients", "Zeros by group", "A", {"group": "embed"}, 30, 0.62),
    ("stability", "State of each rank", "A", {"rank": "2"}, 30, 2),
    ("stability", "Incidents by class", "A", {"class": "sync_budget"}, 15, 0),
    ("stability", "Incidents by class", "A", {"class": "sync_budget"}, 30, 2),
    ("stability", "Incidents by class", "A", {"class": "nonfinite_grad"}, 13.5, 2),
    ("stability", "Incidents by class", "A", {"class": "nonfinite_grad"}, 30, 0),
    ("stability", "Groups with values that were not finite", "A", {"group": "blocks.4"}, 13.25, 1),
    ("stability", "Groups with values that were not finite", "A", {"group": "unknown"}, 13.25, 0),
    ("stability", "Steps without an update", "A", {"reason": "amp_overflow"}, 5.25, 1),
    ("stability", "Steps without an update", "A", {"reason": "amp_overflow"}, 8, 0),
    ("stability", "Incidents so far", "A", {"class": "grad_exploding"}, 30, 1),
    ("stability", "Bad steps of the worst groups", "A", {"group": "blocks.4", "site": "grad"}, 30, 120),
    ("stability", "Loss scale", "A", {"rank": "0"}, 10, 16384),
    ("stability", "Reads for each step", "A", {"rank": "0", "site": "weight"}, 30, 0.02),
    ("syncs", "Time lost by place, over time", "A", {"location": "data.py:57 to_device"}, 10, 0.006 / 0.5),
    ("syncs", "Host syncs per step", "A", {}, 10, 4),
    ("syncs", "Host syncs per step", "A", {}, 30, 8),
    ("syncs", "Time blocked", "A", {}, 10, 0.04 * 2),
    ("syncs", "Time blocked", "A", {}, 30, 0.1 * 1.6),
    ("syncs", "Steps over the budget so far", "A", {}, 30, 4 * (2 * 240 + 1.6 * 600)),
    ("syncs", "Time that was counted", "A", {}, 30, (4 * 1740 - 60) / (4 * 1740)),
    ("syncs", "Gradvane's own, per step", "A", {}, 30, 0),
    ("syncs", "Host syncs per step, by kind", "A", {"kind": "d2h_read"}, 30, 6),
    ("syncs", "Host syncs per step, by phase", "A", {"phase": "forward"}, 30, 4),
    ("syncs", "Time lost by place in the code", "A", {"location": "train.py:88 train_step"}, 30, 4 * 3240 * 0.03),
    ("syncs", "Time lost by place in the code", "B", {"location": "model.py:141 forward"}, 30, 4 * 4 * 1440),
    ("syncs", "Time lost by place in the code", "D", {"location": "data.py:57 to_device"}, 30, 0.006),
    ("syncs", "Polls per step", "A", {"origin": "gradvane"}, 30, 6),
    ("syncs", "Where the counts come from", "A", {"rank": "0", "source": "none"}, 7.5, 0),
    ("syncs", "Where the counts come from", "A", {"rank": "1", "source": "cupti"}, 7.5, 1),
    ("fleet", "Targets that do not answer", "A", {}, 30, 0),
    ("fleet", "Steps between first and last", "A", {}, 30, 0),
    ("fleet", "Behind the median, worst rank", "A", {}, 30, 0.2),
    ("fleet", "Ranks side by side", "D", {"rank": "3"}, 30, 0.2),
    ("fleet", "Ranks side by side", "D", {"rank": "1"}, 30, 0),
    ("fleet", "Data phase, worst over median", "A", {}, 30, 0.125),
    ("fleet", "Ranks side by side", "A", {"rank": "1"}, 30, 2),
    ("fleet", "Ranks side by side", "C", {"rank": "1"}, 30, 0.625),
    ("fleet", "Ranks side by side", "E", {"rank": "3"}, 30, 0.175),
    ("fleet", "Ranks side by side", "F", {"rank": "3"}, 30, 0.16),
    ("fleet", "Ranks side by side", "G", {"rank": "3"}, 30, 0.08),
    ("fleet", "Waiting for other ranks", "A", {"rank": "0"}, 30, 0.272),
    ("fleet", "Ranks side by side", "J", {"rank": "0"}, 30, 3),
    ("fleet", "Scrapes that answered", "A", {"instance": "node-b:9465"}, 10, 0),
    ("compare", "Loss by step", "A", {"whose": RUN}, 10, 2 * 540),
    ("compare", "Learning rate by step", "A", {"whose": RUN}, 30, 2 * 1140 + 1.6 * 600),
    ("compare", "Learning rate by step", "B", {"whose": RUN}, 30, 6e-4),
    ("compare", "Step time by step", "B", {"whose": RUN}, 10, 0.5),
    ("compare", "Step time by step", "B", {"whose": RUN}, 30, 0.625),
    ("compare", "Tokens per second by step", "B", {"whose": RUN}, 10, 4 * 2 * 8192),
    ("compare", "Runs side by side", "A", {"run": RUN}, 30, 2 * 1140 + 1.6 * 600),
    ("compare", "Runs side by side", "B", {"run": RUN}, 30, 4),
    ("compare", "Runs side by side", "G", {"run": RUN}, 30, 4),
]


@pytest.mark.parametrize("board, panel, ref, labels, minute, value", NUMBERS)
def test_a_panel_shows_the_number_that_is_known(asker, board, panel, ref, labels, minute, value):
    target = target_of(board, panel, ref)
    answer = asker.ask_target(target)
    (series,) = [each for each in answer.series if labels.items() <= each.labels.items()]
    shown = series.last if target.now else series.at(at(minute))
    assert shown == pytest.approx(value, rel=1e-6, abs=1e-9)


def test_a_line_through_a_bad_stretch_is_flat_and_the_strip_tells_of_it(asker):
    """A gauge keeps its last finite value: what the descriptions say."""
    loss = asker.ask_target(target_of("overview", "Loss")).series[0]
    assert loss.at(at(13.25)) == loss.at(at(13.5)) == loss.at(at(13.75)) != loss.at(at(14.25))


def test_the_group_that_moves_is_first(asker):
    movers = asker.ask_target(target_of("gradients", "Top movers")).series
    assert max(movers, key=lambda series: series.last).labels["group"] == "blocks.5"
    rows = asker.ask_target(target_of("gradients", "Against its own median of this range")).series
    now = {series.labels["group"]: series.last for series in rows}
    assert now["blocks.5"] > 4 and all(abs(value) < 1 for group, value in now.items() if group != "blocks.5")
    assert abs(next(series for series in rows if series.labels["group"] == "blocks.5").at(at(15))) < 1


def test_tables_have_the_rows_that_are_known(asker):
    began = asker.ask_target(target_of("overview", "Where incidents began")).series
    assert {series.labels["class"] for series in began} == {"nonfinite_grad", "sync_budget", "grad_exploding",
                                                            "loss_divergence"} and len(began) == 4
    (first,) = [series for series in began if series.labels["class"] == "nonfinite_grad"]
    assert (first.labels["step"], first.labels["element"]) == (str(1 + 2 * int(BAD)), "1311")
    alerts = asker.ask_target(target_of("overview", "Alerts that fire now")).series
    assert {series.labels["alertname"] for series in alerts} == {"GradvaneGradientNormExploding", "GradvaneHostSyncBudgetExceeded",
                                                                 "GradvaneLossDiverging"}  # one more was over by then


def test_columns_of_a_table_have_the_same_rows(asker):
    """Else a row would be torn in two."""
    for board in BOARDS:
        for panel in panels(board):
            if panel["type"] != "table":
                continue
            answers = [asker.ask(target["expr"], now=True).series for target in panel["targets"]]
            rows = {frozenset(series.labels.items() - {("__name__", "")}) for series in answers[0]}
            for series in answers[1:]:
                assert {frozenset(each.labels.items()) for each in series} == rows, panel["title"]


def occasions(asker: Asker, name: str) -> set[float]:
    (event,) = [each for each in events(OVERVIEW) if each["name"] == name]
    answer = asker.ask(event["expr"], now=False)
    assert answer.status == 200 and not answer.said
    if event.get("useValueForTime"):
        return {value / 1000 for series in answer.series for _, value in series.points}
    return {series.points[0][0] for series in answer.series}


@pytest.mark.parametrize("name, minutes", [
    ("Run starts", [1]), ("Run ends", []), ("Incidents", [13, 16, 27, 28.5]), ("Checkpoints", [6, 11, 16, 21, 26]),
    ("Alerts", [13.25, 16.25, 27.25, 28.75]), ("Recordings", [13])])
def test_events_stand_where_they_were(asker, name, minutes):
    assert occasions(asker, name) == {at(minute) for minute in minutes}


def test_an_incident_is_marked_with_where_it_began(asker):
    (event,) = [each for each in events(OVERVIEW) if each["name"] == "Incidents"]
    found = [series.labels for series in asker.ask(event["expr"], now=False).series
             if series.labels["class"] == "nonfinite_grad"]
    assert len(found) == 4 and all(labels["param"].startswith("blocks.4.") and labels["step"] for labels in found)


@pytest.mark.parametrize("name, offered", [
    ("cluster", []), ("namespace", []), ("job", ["training"]), ("run", ["gpt-other", RUN, TUNED]), ("rank", FOUR),
    ("instance", ["node-a:9464", "node-a:9465", "node-b:9464", "node-b:9465"]), ("group", sorted(GROUPS))])
def test_a_variable_offers_what_is_there(asker, name, offered):
    queries = {each["query"] for board in BOARDS for each in variables(board) if each["name"] == name}
    for query in queries:
        assert sorted(asker.label_values(query)) == sorted(offered)


def test_a_rank_that_is_chosen_narrows_down_the_instances(known):
    asker = Asker(known.url, Window(BEGIN, END), values_of(rank=["2"]))
    query = next(each["query"] for each in variables(OVERVIEW) if each["name"] == "instance")
    assert asker.label_values(query) == ["node-b:9464"]


@pytest.mark.parametrize("picked, board, panel, count", [
    ({}, "overview", "Loss", 4),
    ({"rank": ["1", "2"]}, "overview", "Loss", 2),
    ({"rank": ["3"]}, "overview", "Loss", 1),
    ({"namespace": ["research"]}, "overview", "Loss", 0),  # which no series has
    ({"instance": ["node-a:9464"]}, "overview", "Loss", 1),
    ({"instance": ["node-a:9464"], "rank": ["3"]}, "overview", "Loss", 0),
    ({"job": ["training"]}, "fleet", "Ranks side by side", 4),
    ({"job": ["elsewhere"]}, "fleet", "Ranks side by side", 0),
    ({"group": ["head", "blocks.1"]}, "gradients", "Gradient norm of each group", 2),
    ({"group": [ALL]}, "gradients", "Gradient norm of each group", 11),
    ({"topk": ["5"]}, "gradients", "Top movers", 5),
])
def test_what_is_chosen_is_what_is_shown(known, picked, board, panel, count):
    asker = Asker(known.url, Window(BEGIN, END), values_of(**picked))
    assert len(asker.ask_target(target_of(board, panel)).series) == count


def test_another_run_gets_into_no_panel(known, asker):
    """Its numbers are a million times as large, its group is called alien, and its target is down."""
    assert asker.ask('up{instance="node-c:9464"}', now=True).only().last == 0
    assert asker.ask('gradvane_loss{run="gpt-other"}', now=True).only().last == 1e6
    for target in TARGETS:
        for series in asker.ask_target(target).series:
            assert series.labels.get("run", RUN) == RUN and series.labels.get("group") != "alien", target.name
            assert series.labels.get("instance") != "node-c:9464", target.name


def test_of_two_optimizers_each_has_a_line_of_its_own(known):
    asker = Asker(known.url, Window(BEGIN, END), {**values_of(), "run": chosen(TWO, is_multi=False)})
    seen = set()
    for target in TARGETS:
        answer = asker.ask_target(target)
        if not answer.series or "optimizer" not in target.expr:
            continue
        assert complaints(answer, target.legend) == [], target.name
        assert sorted(series.last for series in answer.series) == [10, 11], target.name
        seen |= {series.labels["whose"] for series in answer.series if target.legend}
    assert seen >= {"0, optimizer 0", "0, optimizer 1", "before clipping, optimizer 1", "vanishing, optimizer 0"}


def test_the_join_with_dcgm_gives_each_rank_its_gpus_number(asker):
    """With a stand-in for dcgm-exporter's series, where one GPU is nobody's."""
    text = (ROOT / "docs" / "prometheus.md").read_text()
    (query,) = re.findall(r"```promql\n(gradvane_device_info.*?)```", text, re.DOTALL)
    for each in (query, target_of("overview", "GPU utilization").expr):
        found = asker.ask(each, now=True)
        assert found.status == 200 and not found.said
        assert {each.labels["rank"]: each.last for each in found.series} == {"0": 90, "1": 91, "2": 92, "3": 93}
        assert all(each.labels["run"] == RUN and each.labels["device"] == "cuda:0" for each in found.series)


def test_series_that_lead_to_the_agents_page_know_its_address(asker):
    for board in BOARDS:
        for panel in panels(board):
            if panel["fieldConfig"]["defaults"].get("links"):
                first = panel["targets"][0]
                for series in asker.ask(first["expr"], bool(first.get("instant"))).series:
                    assert re.fullmatch(r"node-[ab]:946[45]", series.labels.get("instance", "")), panel["title"]


def test_a_longer_range_and_slower_scrapes_are_asked_for_as_grafana_does(known):
    """A week in a graph of 1,000 points; a scrape a minute. Rates need four scrapes, or a step and a scrape."""
    assert Window(0, 1800).rate_interval == 60 and Window(0, 1800, scrape=60).rate_interval == 240
    week = Window(END - 7 * 86400, END)
    assert week.step == 605 and week.rate_interval == 620
    asker = Asker(known.url, week, values_of())
    for target in TARGETS:
        answer = asker.ask_target(target)
        assert answer.status == 200 and not answer.said, f"{target.name}: {answer.said}"


def test_the_preview_has_every_panel_and_nothing_lies_over_another(asker):
    """It opens all rows, and what is below them moves down."""
    for board in BOARDS:
        text, height, _ = preview.page(asker, board)
        rows = preview.opened(board)
        assert {panel["id"] for panel in panels(board)} <= {panel["id"] for panel in rows}
        flat = [{key: value for key, value in panel.items() if key != "panels"} for panel in rows]
        assert without_overlap({"panels": flat}) == []
        assert text.count("gradvaneBoard") == 1 and height > 1000


@pytest.mark.parametrize("value, said", [
    ("3", "3"), (["3"], "3"), (["1", "2"], "(1|2)"), ([ALL], ".+"), (["node.a:1"], r"node\\.a:1"),
    (["blocks.0", "a|b"], r"(blocks\\.0|a\\|b)"), ([r"a\b"], r"a\\\\b")])
def test_values_are_written_into_a_query_as_grafana_writes_them(value, said):
    assert chosen(value) == said


def test_a_run_with_quotes_in_its_name_stays_one_string():
    assert chosen('my "run"', is_multi=False) == r'my \"run\"'


def test_the_known_run_publishes_what_the_catalogue_says():
    """So that it proves something of real ones: no other metric, no other label, and all metrics."""
    names = catalogue()
    seen = set()
    for line in openmetrics().splitlines()[:-1]:
        metric, labels = re.match(r"(\w+)\{([^}]*)\}", line).groups()
        if metric in ("up", "ALERTS") or metric.startswith("DCGM_"):
            continue
        seen.add(metric)
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            if label not in FROM_SCRAPING and label != "le":
                allowed = names[metric][label]
                assert not allowed or value in allowed, line
    assert {name for name in names if name not in seen} == {
        "gradvane_step_duration_seconds", "gradvane_run_end_info"}  # it goes on
