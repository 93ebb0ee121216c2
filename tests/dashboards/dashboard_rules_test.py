"""The dashboards against the rules of Grafana's dashboard-linter and of this house; each rule can fail."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import board_rules as rules
from board_rules import events, panels, variables
from catalogue import catalogue, wrong_names

from board_check.boards import load
from board_check.expansion import Window, expanded

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BOARDS = load(ROOT / "dashboards" / "grafana")
UIDS = ["gradvane-compare", "gradvane-fleet", "gradvane-gradients", "gradvane-overview", "gradvane-stability",
        "gradvane-syncs"]
SEVERAL_RUNS = "gradvane-compare"
"""Several runs are chosen there, which share steps and not times: it has no events."""
VALUES = {"cluster": ".*", "namespace": ".*", "job": ".+", "run": "r", "rank": ".+", "instance": ".+", "group": ".+", "topk": "10"}

# Rule -> panel -> why it is left out there.
EXCLUDED = {
    "target_instance": {
        "Alerts that fire now: ALERTS": "an alert is of a run, and of no single process",
        "Alerts: ALERTS": "the same",
    },
    "target_counter_agg": {
        "Runs side by side": "a count of incidents, as it was when each run ended",
        "Incidents so far": "a count of events since the process started: increase() would make fractions of it",
        "Bad steps of the worst groups": "the same",
        "Steps over the budget so far": "the same",
        "Groups with values that were not finite": "a counter that is born with its first event has no increase yet",
        "Time that was counted": "the share of the whole run, of which two counters are the two parts",
    },
}
LINTER = ("template_datasource template_job template_instance template_label_promql template_on_time_change_reload "
          "panel_datasource panel_title_description panel_no_targets target_rate_interval target_job target_instance "
          "target_counter_agg").split()
HOUSE = ("editable portable numbers_unique names_unique without_overlap no_default_threshold raw_metrics_but_for_many_ranks shown_cells "
         "in_sight instant_where_now plotted_by_step").split()


def judged(rule: str, board: rules.Board) -> list[str]:
    return [wrong for wrong in getattr(rules, rule)(board) if wrong not in EXCLUDED.get(rule, {})]


@pytest.mark.parametrize("rule", LINTER + HOUSE)
def test_every_dashboard_keeps_the_rule(rule):
    assert {board["uid"]: judged(rule, board) for board in BOARDS} == {uid: [] for uid in UIDS}


def test_what_is_excluded_would_not_keep_the_rule():
    for rule, reasons in EXCLUDED.items():
        found = {wrong for board in BOARDS for wrong in getattr(rules, rule)(board)}
        assert set(reasons) <= found and all(reasons.values())


def known_units() -> set[str]:
    units = pytest.importorskip("grafana_foundation_sdk.models.units", reason="it wants Python 3.11")
    return {value for name, value in vars(units).items() if not name.startswith("_") and isinstance(value, str)}


def test_every_unit_is_one_that_grafana_knows():
    known = known_units()
    assert len(known) > 200 and {"s", "percentunit", "bytes"} <= known
    assert [rules.panel_units(board, known) for board in BOARDS] == [[]] * len(BOARDS)
    # It is no unit id, and Grafana would print it as text.
    printed = broken(lambda board, panel: panel["fieldConfig"]["defaults"].update(unit="seconds"))
    assert rules.panel_units(printed, known) == ["Loss: seconds"]


def broken(how, uid: str = "gradvane-overview", kind: str = "timeseries") -> rules.Board:
    """A dashboard with something done to it and to its first panel of that type."""
    board = copy.deepcopy(next(board for board in BOARDS if board["uid"] == uid))
    how(board, next(panel for panel in panels(board) if panel["type"] == kind))
    return board


def set_in(name: str, **values):
    return lambda board, panel: rules.variable(board, name).update(values)


def with_expr(old: str, new: str):
    def change(board, panel):
        expr = panel["targets"][0]["expr"]
        assert old in expr
        panel["targets"][0]["expr"] = expr.replace(old, new)
    return change


def asking(expr: str):
    return lambda board, panel: panel["targets"][0].update(expr=expr)


CHOSEN = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",run="$run",instance=~"$instance",rank=~"$rank"'


@pytest.mark.parametrize("rule, how", [
    ("template_datasource", set_in("datasource", label="Prometheus")),
    ("template_job", set_in("job", allValue=".*")),
    ("template_instance", set_in("instance", multi=False)),
    ("template_label_promql", set_in("rank", query="label_values(gradvane_run_info{run=\"$run\", rank)")),
    ("template_on_time_change_reload", set_in("run", refresh=1)),
    ("panel_datasource", lambda board, panel: panel.update(datasource={"type": "prometheus", "uid": "${DS_PROM}"})),
    ("panel_datasource", lambda board, panel: panel["targets"][0].update(datasource=None)),
    ("panel_datasource", lambda board, panel: events(board)[0].update(datasource=None)),
    ("panel_title_description", lambda board, panel: panel.update(description="")),
    ("panel_no_targets", lambda board, panel: panel.update(targets=[])),
    ("target_rate_interval", asking("rate(gradvane_steps_total{" + CHOSEN + "}[5m])")),
    ("target_job", with_expr('job=~"$job",', "")),
    ("target_job", asking("gradvane_loss")),
    ("target_instance", with_expr('instance=~"$instance",', "")),
    ("target_counter_agg", asking("sum(gradvane_steps_total{" + CHOSEN + "})")),
    ("target_counter_agg", asking("delta(gradvane_steps_total{" + CHOSEN + "}[$__rate_interval])")),
    ("editable", lambda board, panel: board.update(editable=False)),
    ("portable", lambda board, panel: board.update(__inputs=[])),
    ("portable", lambda board, panel: board.update(id=7)),
    ("numbers_unique", lambda board, panel: panel.update(id=101)),
    ("names_unique", lambda board, panel: panel.update(title="Step")),
    ("without_overlap", lambda board, panel: panel["gridPos"].update(y=0)),
    ("without_overlap", lambda board, panel: panel["gridPos"].update(w=25)),
    ("no_default_threshold", lambda board, panel: panel["fieldConfig"]["defaults"].update(
        thresholds={"steps": [{"value": None, "color": "green"}, {"value": 80, "color": "red"}]})),
    ("raw_metrics_but_for_many_ranks", asking("run_rank:gradvane_steps:rate5m{" + CHOSEN + "}")),
    ("shown_cells", lambda board, panel: panel.update(type="heatmap", options={"filterValues": {"le": 1e-9}})),
    ("in_sight", lambda board, panel: board["links"][0].update(placement="inControlsMenu")),
    ("in_sight", lambda board, panel: events(board)[1].update(hide=True)),
    ("instant_where_now", lambda board, panel: panel.update(type="bargauge")),
])
def test_a_dashboard_that_does_not_keep_the_rule_is_seen(rule, how):
    assert judged(rule, broken(how)) != []


@pytest.mark.parametrize("how", [
    lambda panel: panel["targets"].pop(),
    lambda panel: panel["targets"][0].update(format="time_series"),
    lambda panel: panel["targets"][1].update(instant=True, range=False),
    lambda panel: panel["targets"][1].update(expr=panel["targets"][1]["expr"].replace('run=~"$run"', 'run="$run"')),
    lambda panel: panel["targets"][1].update(expr=panel["targets"][1]["expr"].replace("by (whose)", "by (run)")),
    lambda panel: panel["transformations"].pop(0),
    lambda panel: panel["transformations"][-1]["options"].update(fields=["run"]),
    lambda panel: panel["options"]["series"][0]["x"]["matcher"].update(options="Step"),
])
def test_a_chart_that_is_not_plotted_by_step_is_seen(how):
    assert rules.plotted_by_step(broken(lambda _, panel: how(panel), "gradvane-compare", "xychart")) == ["Loss by step"]


def test_dashboards_have_their_fixed_addresses_and_are_of_one_schema():
    assert [board["uid"] for board in BOARDS] == UIDS
    assert sorted(path.stem for path in (ROOT / "dashboards" / "grafana").glob("*.json")) == UIDS
    for board in BOARDS:
        assert board["schemaVersion"] == 41 and board["version"] == 1 and board["tags"] == ["gradvane"]
        assert len(board["uid"]) <= 40 and len(board["description"].split()) > 5
        assert board["graphTooltip"] == 1 and board["timezone"] == "browser"


def test_variables_stand_in_the_order_in_which_they_narrow_down():
    for board in BOARDS:
        names = [each["name"] for each in variables(board)]
        assert names[:7] == ["datasource", "cluster", "namespace", "job", "run", "rank", "instance"]
        assert set(names[7:]) <= {"group", "topk"}
        assert bool(rules.variable(board, "run").get("multi")) == (board["uid"] == SEVERAL_RUNS)
        used = " ".join(expr for _, expr in rules.asks(board))
        assert {name for name in ("group", "topk") if f"${name}" in used} == set(names[7:])


# Names that no process of ours publishes, and who does.
FOREIGN = {"up": "Prometheus, for each target", "ALERTS": "Prometheus, from the alert rules"}


def recorded() -> dict[str, str]:
    """Name -> expression of the recording rules that dashboards use, and of those that these build on."""
    file = yaml.safe_load((ROOT / "dashboards" / "alerts" / "gradvane-recording.yaml").read_text())
    shipped = {rule["record"]: rule["expr"] for group in file["groups"] for rule in group["rules"]}
    used: dict[str, str] = {}
    wanted = {name for board in BOARDS for name in rules.recorded_names(board)}
    while wanted:
        used |= {name: shipped[name] for name in wanted}
        wanted = {name for expr in used.values() for name in re.findall(r"\brun(?:_rank)?:[\w:]+", expr)} - set(used)
    return used


def expressions() -> list[tuple[str, str]]:
    found = [(f"{board['uid']}: {title}", expr) for board in BOARDS for title, expr in rules.asks(board)]
    found += [(f"{board['uid']}: {each['name']}", each["expr"]) for board in BOARDS for each in events(board)]
    return found + [(f"{board['uid']}: {each['name']}", each["query"]) for board in BOARDS
                    for each in variables(board) if each["type"] == "query"]


def test_dashboards_use_only_names_of_the_catalogue():
    known = catalogue()
    wrong = [f"{where}: {name}" for where, expr in expressions() for name in wrong_names(expr, known)]
    assert wrong == []
    names = {name for _, expr in expressions() for name, _ in rules.SELECTOR.findall(expr)}
    assert {name for name in names if not name.startswith("gradvane_")} - set(recorded()) == set(FOREIGN)


# Metrics that are in no panel, and why.
ON_NO_DASHBOARD = {
    "gradvane_run_end_info": "an event in all of them",
}


def test_every_metric_of_the_catalogue_is_on_a_dashboard_or_is_listed():
    asked = " ".join([*(expr for board in BOARDS for _, expr in rules.asks(board)), *recorded().values()])
    families = {name for name in catalogue() if not re.search(r"_(sum|count|bucket)$", name)}
    missing = {name for name in families if not re.search(rf"\b{name}(_bucket|_sum)?\b", asked)}
    assert len(families) > 70
    assert missing == set(ON_NO_DASHBOARD)
    assert not re.search(r"(?<!:)\bgradvane_steps\b", asked)  # a name that is part of another is not that name


def promtool(folder: Path, queries: list[str]) -> subprocess.CompletedProcess[str]:
    file = folder / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": [
        {"record": f"query:{index}", "expr": query} for index, query in enumerate(queries)]}]}, width=10**6))
    program = Path(os.environ["GRADVANE_SERVERS_DIR"]) / "promtool"
    return subprocess.run([program, "check", "rules", "--lint=none", file], capture_output=True, text=True, timeout=60)


def test_every_expression_is_promql(tmp_path):
    window = Window(0, 1800)
    found = [expanded(expr, window, VALUES) for _, expr in expressions() if not expr.startswith("label_values")]
    assert len(found) > 120
    done = promtool(tmp_path, found)
    assert done.returncode == 0, done.stdout + done.stderr
    assert promtool(tmp_path, [*found, "sum(rate(up))"]).returncode != 0


def test_what_happened_is_marked_on_every_dashboard():
    for board in BOARDS:
        if board["uid"] == SEVERAL_RUNS:
            assert events(board) == [] and "timeseries" not in {panel["type"] for panel in panels(board)}
            continue
        names = {each["name"]: each for each in events(board)}
        assert {"Run starts", "Run ends", "Incidents", "Checkpoints", "Alerts"} <= set(names)
        assert "gradvane_incidents_total" in names["Incidents"]["expr"] and names["Incidents"]["enable"]
        for each in names.values():
            assert 'run="$run"' in each["expr"] and each["titleFormat"] and each["textFormat"]


def test_dashboards_lead_to_each_other_and_to_the_agent():
    for board in BOARDS:
        (link,) = board["links"]
        assert link["type"] == "dashboards" and link["tags"] == ["gradvane"]
        assert link["includeVars"] and link["keepTime"] and link["asDropdown"]
    text = " ".join(yaml.safe_dump(board, width=10**6) for board in BOARDS)
    assert set(re.findall(r"/d/([a-z-]+)/\1\?", text)) >= {"gradvane-overview", "gradvane-gradients"}
    assert set(re.findall(r"/d/([a-z-]+)/", text)) <= set(UIDS)
    for board in BOARDS:
        for panel in panels(board):
            for link in panel["fieldConfig"]["defaults"].get("links", []):
                assert link["url"] == "http://${__field.labels.instance}/"


def test_runbooks_that_panels_name_exist():
    named = {page for board in BOARDS for panel in panels(board)
             for page in re.findall(r"docs/runbooks/[\w-]+\.md", panel["description"])}
    assert len(named) > 12
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []


def test_alerts_lead_to_a_dashboard_that_takes_their_variables():
    alerts = (ROOT / "dashboards" / "alerts" / "gradvane-alerts.yaml").read_text()
    led = re.findall(r"dashboard_url: '[^']*/d/([\w-]+)/([\w-]+)\?([^']*)'", alerts)
    assert len(led) == alerts.count("- alert:") > 20
    for uid, slug, query in led:
        board = next(board for board in BOARDS if board["uid"] == uid)
        assert slug == uid
        for name in re.findall(r"var-(\w+)=", query):
            assert rules.variable(board, name), name


def test_every_dashboard_has_its_picture_in_the_documentation():
    text = (ROOT / "docs" / "dashboards.md").read_text()
    for board in BOARDS:
        assert f"images/dashboards/{board['uid']}.png" in text and board["title"].split(": ")[1] in text.lower()
        assert (ROOT / "docs" / "images" / "dashboards" / f"{board['uid']}.png").is_file()
    assert "none was run, of any version" in text
