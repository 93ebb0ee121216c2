"""The rules of Grafana's dashboard-linter, written anew, and those of this house. Each returns what is wrong.

The linter itself is a Go program that could not be had where this was written. Where it asks a PromQL parser, these
look at the text of expressions that one program has written, and promtool parses them besides.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from board_check.boards import events, panels, targets, variables  # noqa: E402

Board = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\{([^}]*)\}")


def variable(board: Board, name: str) -> dict[str, Any]:
    return next((each for each in variables(board) if each["name"] == name), {})


def asks(board: Board) -> Iterator[tuple[str, str]]:
    """(panel's title, expression) of every query of a panel."""
    for target in targets(board):
        yield target.panel, target.expr


def template_datasource(board: Board) -> list[str]:
    found = variable(board, "datasource")
    good = found.get("type") == "datasource" and found["query"] == "prometheus" and found["label"] == "Data source"
    return [] if good else ["no variable `datasource` labelled Data source"]


def template_of(board: Board, name: str) -> list[str]:
    found = variable(board, name)
    wanted = {"type": "query", "label": name.capitalize(), "multi": True, "allValue": ".+", "datasource": SOURCE}
    return [f"variable {name}: {key} is {found.get(key)!r}" for key, value in wanted.items() if found.get(key) != value]


def template_job(board: Board) -> list[str]:
    return template_of(board, "job")


def template_instance(board: Board) -> list[str]:
    return template_of(board, "instance")


def template_label_promql(board: Board) -> list[str]:
    return [f"variable {each['name']}: {each['query']}" for each in variables(board) if each["type"] == "query"
            and not re.fullmatch(r"label_values\(\w+(\{[^{}]+\})?, \w+\)", each["query"])]


def template_on_time_change_reload(board: Board) -> list[str]:
    return [f"variable {each['name']}" for each in variables(board) if each["type"] == "query" and each["refresh"] != 2]


def panel_datasource(board: Board) -> list[str]:
    """Of panels, and of all else that asks."""
    asking = [(panel["title"], panel) for panel in panels(board)]
    asking += [(panel["title"], target) for panel in panels(board) for target in panel["targets"]]
    asking += [(each["name"], each) for each in [*events(board), *variables(board)]
               if each.get("type") not in ("datasource", "custom")]
    return [name for name, each in asking if each.get("datasource") != SOURCE]


def panel_title_description(board: Board) -> list[str]:
    return [f"{panel['id']}: {panel.get('title')}" for panel in panels(board)
            if not panel.get("title") or len(panel.get("description", "").split()) < 3]


def panel_units(board: Board, known: set[str]) -> list[str]:
    """Of columns too."""
    wrong = []
    for panel in panels(board):
        config = panel["fieldConfig"]
        found = [config["defaults"].get("unit")]
        found += [part["value"] for override in config["overrides"] for part in override["properties"]
                  if part["id"] == "unit"]
        wrong += [f"{panel['title']}: {unit}" for unit in found if unit not in known]
    return wrong


def panel_no_targets(board: Board) -> list[str]:
    return [panel["title"] for panel in panels(board) if not panel.get("targets")]


def target_rate_interval(board: Board) -> list[str]:
    return [f"{title}: {call}" for title, expr in asks(board)
            for call in re.findall(r"\bi?rate\([^\[]*\[(?!\$__rate_interval\])[^\]]*\]", expr)]


def has_matcher(board: Board, matcher: str) -> list[str]:
    """Every selector has it, and there is no metric without one."""
    wrong = []
    for title, expr in asks(board):
        wrong += [f"{title}: {name}" for name, inside in SELECTOR.findall(expr) if matcher not in inside.split(",")]
        bare = re.sub(r"\{[^}]*\}", "{}", expr)
        names = re.findall(r"(?<![\w:])(gradvane_\w+|up|ALERTS|run(?:_rank)?:[\w:]+)(?![\w:{])", bare)
        wrong += [f"{title}: {name}" for name in names]
    return wrong


def target_job(board: Board) -> list[str]:
    return has_matcher(board, 'job=~"$job"')


def target_instance(board: Board) -> list[str]:
    return has_matcher(board, 'instance=~"$instance"')


def target_counter_agg(board: Board) -> list[str]:
    wrong = []
    for title, expr in asks(board):
        for match in re.finditer(r"(\w+\()?\bgradvane_\w+_total\{[^}]*\}(\[)?", expr):
            if match[1] not in ("rate(", "irate(", "increase(") or not match[2]:
                wrong.append(title)
    return wrong


# ---- this house's ---------------------------------------------------------------------------------


def editable(board: Board) -> list[str]:
    """The linter asks for the opposite. Who imports a dashboard changes it in place."""
    return [] if board.get("editable") is True else ["editable"]


def portable(board: Board) -> list[str]:
    """One file for provisioning and for import by hand."""
    wrong = [key for key in ("__inputs", "__requires", "__elements") if key in board]
    return wrong + (["id"] if board.get("id") is not None else [])


def numbers_unique(board: Board) -> list[str]:
    everything = [*board["panels"], *(inside for row in board["panels"] for inside in row.get("panels") or [])]
    numbers = [each["id"] for each in everything]
    return [str(number) for number in set(numbers) if numbers.count(number) > 1 or number < 1]


def names_unique(board: Board) -> list[str]:
    """A question about a panel is asked by its title."""
    titles = [panel["title"] for panel in panels(board)]
    return [title for title in set(titles) if titles.count(title) > 1]


def without_overlap(board: Board) -> list[str]:
    """Panels that are on the page together: those of open rows, and those of each row that is opened."""
    pages = [board["panels"]] + [row["panels"] for row in board["panels"] if row.get("panels")]
    wrong = []
    for page in pages:
        taken: dict[tuple[int, int], str] = {}
        for panel in page:
            at = panel["gridPos"]
            if at["x"] + at["w"] > 24 or at["w"] < 1 or at["h"] < 1:
                wrong.append(f"{panel['title']} does not fit")
            for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
                if cell in taken and taken[cell] not in wrong:
                    wrong.append(f"{panel['title']} lies over {taken[cell]}")
                taken[cell] = panel["title"]
    return wrong


def no_default_threshold(board: Board) -> list[str]:
    return [panel["title"] for panel in panels(board)
            if any(step.get("value") == 80 for step in panel["fieldConfig"]["defaults"].get("thresholds", {})
                   .get("steps", []))]


def raw_metrics_but_for_many_ranks(board: Board) -> list[str]:
    """They work in a Prometheus without the recording rules, but for the board of many ranks, which would take too long
    there."""
    if board["uid"] == "gradvane-fleet":
        return []
    return [title for title, expr in asks(board) if re.search(r"\brun(_rank)?:", expr)]


def recorded_names(board: Board) -> set[str]:
    return {name for _, expr in asks(board) for name, _ in SELECTOR.findall(expr) if ":" in name}


def shown_cells(board: Board) -> list[str]:
    """A heat map hides what is not above 0 unless it is told otherwise."""
    return [panel["title"] for panel in panels(board) if panel["type"] == "heatmap"
            and panel["options"]["filterValues"]["le"] > -1e6]


def in_sight(board: Board) -> list[str]:
    """Events and links are not hidden in a menu."""
    return [each.get("name") or each["title"] for each in [*events(board), *board["links"]]
            if each.get("placement") == "inControlsMenu" or each.get("hide")]


def instant_where_now(board: Board) -> list[str]:
    """Tables and bars show the end of the range: they ask for nothing else."""
    return [panel["title"] for panel in panels(board) if panel["type"] in ("table", "bargauge")
            for target in panel["targets"] if not target.get("instant") or target.get("range")]


def is_plotted_by_step(panel: dict[str, Any]) -> bool:
    """Two queries, x and y, become a data frame for each curve: what Grafana's XY chart draws."""
    x_and_y = [target["refId"] for target in panel["targets"]] == ["A", "B"] and all(
        target["format"] == "table" and target["range"] and not target["instant"] and 'run=~"$run"' in target["expr"]
        and target["expr"].startswith("max by (whose) (") for target in panel["targets"])
    steps = [(each["id"], each["options"]) for each in panel["transformations"]]
    split = {"fields": ["whose"], "keepFields": False, "naming": {"asLabels": False}}
    (series,) = panel["options"]["series"]
    return (x_and_y and "gradvane_run_step{" in panel["targets"][0]["expr"]
            and [name for name, _ in steps] == ["merge", "sortBy", "partitionByValues"] and steps[-1][1] == split
            and series["x"]["matcher"] == {"id": "byName", "options": "Value #A"})


def plotted_by_step(board: Board) -> list[str]:
    return [panel["title"] for panel in panels(board) if panel["type"] == "xychart" and not is_plotted_by_step(panel)]
