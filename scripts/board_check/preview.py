"""What the preview draws: a dashboard with the answers to its queries, rows opened, in one file.

    python scripts/board_check/preview.py --out OUT (--known PROGRAMS | --prometheus URL --run RUN)

scripts/dashboards_preview.sh calls it. Writes OUT/<uid>.html, a page that stands for itself beside page.js and page.css, and prints for each its uid, its
width and height in pixels, and the height of its first two rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from board_check.asking import Asker, Series  # noqa: E402
from board_check.backfill import KnownPrometheus  # noqa: E402
from board_check.boards import events, load, panels, variables  # noqa: E402
from board_check.expansion import Window, chosen as written  # noqa: E402
from board_check.known_run import BEGIN, END, RUN, SCRAPE, TUNED  # noqa: E402

WIDTH = 1500
CELL, HEAD, FOOT = 38, 72, 34
FOOTNOTE = ("Graphs, numbers, bars and tables: drawn by Grafana 12.4's own components (@grafana/ui). Layout, "
            "variables, dashed lines of events, state timelines, heat maps and XY charts: by this preview. No Grafana "
            "server was run.")
PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<link rel="stylesheet" href="page.css"><div id="board"></div>
<script>window.gradvaneBoard = {data};</script><script src="page.js"></script>
"""


def entry(series: Series, now: bool) -> dict[str, Any]:
    points = [[when, str(value)] for when, value in series.points]
    return {"metric": series.labels, **({"value": points[-1]} if now else {"values": points})}


def opened(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Panels and rows from top to bottom, all rows open."""
    found: list[dict[str, Any]] = []
    shift = 0
    for panel in board["panels"]:
        below = {**panel, "gridPos": {**panel["gridPos"], "y": panel["gridPos"]["y"] + shift}}
        found.append(below)
        inside = panel.get("panels") or []
        if inside:
            # They were placed as if the row were open.
            found += [{**each, "gridPos": {**each["gridPos"], "y": each["gridPos"]["y"] + shift}} for each in inside]
            last = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in inside)
            shift += last - panel["gridPos"]["y"] - 1
    return found


def occurrences(series: list[Series], at_value: bool, step: int) -> list[float]:
    """When an event began: one that lasts for several points is one."""
    if at_value:
        return sorted({value / 1000 for each in series for _, value in each.points})
    found = set()
    for each in series:
        before = float("-inf")
        for when, value in each.points:
            if value > 0 and when - before > step:
                found.add(when)
            before = when if value > 0 else before
    return sorted(found)


def takes_several(board: dict[str, Any]) -> bool:
    """Whether several runs can be chosen on it."""
    return any(each["name"] == "run" and each.get("multi") for each in variables(board))


def page(asker: Asker, board: dict[str, Any], runs: str = RUN) -> tuple[str, int, int]:
    answers = {}
    for panel in panels(board):
        answers[panel["id"]] = [
            {"target": target, "result": [entry(each, bool(target.get("instant"))) for each in asker.ask(
                target["expr"], bool(target.get("instant"))).series]}
            for target in panel["targets"]]
    marks = [{"name": event["name"], "colour": event["iconColor"], "times": occurrences(
        asker.ask(event["expr"], False).series, bool(event.get("useValueForTime")), asker.window.step)}
        for event in events(board) if event["enable"]]
    rows = opened(board)
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in rows) * CELL + HEAD + FOOT
    window = asker.window
    start, end = (int(edge // window.step) * window.step for edge in (window.start, window.end))
    picked = [("Data source", "Prometheus"), ("Job", "All"), ("Run", runs), ("Rank", "All"),
              ("Instance", "All")]
    data = {"board": {"title": board["title"], "panels": rows, "height": height, "footnote": FOOTNOTE},
            "answers": answers, "events": marks, "picked": picked, "width": WIDTH,
            "window": {"start": start, "end": end, "step": window.step}}
    text = json.dumps(data).replace("</", "<\\/")
    third = [each["gridPos"]["y"] for each in rows if each["type"] == "row"][2]
    return PAGE.format(title=board["title"], data=text), height, third * CELL + HEAD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--known", type=Path, metavar="PROGRAMS", help="the run whose numbers are known")
    which.add_argument("--prometheus", metavar="URL", help="a run of yours, until now")
    parser.add_argument("--run", default=RUN)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--scrape", type=int, default=SCRAPE, metavar="SECONDS")
    chosen = parser.parse_args()
    values = {"cluster": ".*", "namespace": ".*", "job": ".+", "run": chosen.run, "instance": ".+", "rank": ".+",
              "group": ".+", "topk": "10"}
    with ExitStack() as stack:
        if chosen.known:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gradvane-preview-"))
            url = stack.enter_context(KnownPrometheus(chosen.known, Path(folder))).url
            window = Window(BEGIN, END)
        else:
            now = int(time.time())
            url, window = chosen.prometheus, Window(now - round(60 * chosen.minutes), now, chosen.scrape)
        asker = Asker(url, window, values)
        for board in load(ROOT / "dashboards" / "grafana"):
            runs = [chosen.run, TUNED] if chosen.known and takes_several(board) else [chosen.run]
            asker.values["run"] = written(runs if takes_several(board) else chosen.run, is_multi=takes_several(board))
            text, height, top = page(asker, board, " + ".join(runs))
            (chosen.out / f"{board['uid']}.html").write_text(text, encoding="utf-8")
            print(board["uid"], WIDTH, height, top)


if __name__ == "__main__":
    main()
