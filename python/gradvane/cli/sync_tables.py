"""Host syncs for people to read: a table for each process, what it adds up to, and what it leaves out."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from gradvane.cli.agent_api import plain
from gradvane.cli.sync_layout import Row, lines
from gradvane.cli.sync_reports import MAY_WAIT, REJECTED, Report, judge, seconds, times
from gradvane.cli.telling import folded
from gradvane.cli.terminal import number

_ANY_WIDTH = 1_000_000
"""columns where nobody has a terminal: programs and logs get whole lines"""
_MANY_POLLS = 1000
_LEAST_SHARE = 0.001
"""of the time that is told"""
_LOST = {
    "threads": "host syncs of threads that there was no room for are not counted",
    "sites": "host syncs are counted without their place, for want of room",
    "events": "host syncs are counted without their step",
    "unbalanced": "calls were seen to begin or to end, not both, and are not counted",
}


def console() -> Console:
    has_terminal = sys.stderr.isatty() or "COLUMNS" in os.environ
    return Console(stderr=True, highlight=False, width=None if has_terminal else _ANY_WIDTH)


def show(to: Console, report: Report, *, top: int, has_budget: bool) -> None:
    to.print()
    _write(to, headline(report), style="bold")
    if rows := _rows(report, "training"):
        for line in lines(_table(report, rows, top), to.width):
            to.print(line, soft_wrap=True)
    for note in notes(report, has_budget=has_budget):
        _write(to, note)


def _write(to: Console, line: str, style: str = "") -> None:
    to.print(Text(folded(plain(line), to.width), style=style), soft_wrap=True)


def headline(report: Report) -> str:
    if not report.has_counted:
        return f"{report.name}: host syncs were not counted: {report.why()}"
    calls, blocked = report.waited("training")
    what = count(calls, "host sync")
    if report.steps:
        what = f"{count(report.steps, 'step')}, {what}"
    if report.whole_steps:
        what += f", {number(report.in_steps() / report.whole_steps)} per step"
    line = f"{report.name}: {what}, the CPU blocked for {duration(blocked)} in all"
    polls = report.document["polls"]["training"]["calls"]
    return f"{line}, {polls:,} polls" if polls >= _MANY_POLLS else line


def _rows(report: Report, origin: str) -> list[dict[str, Any]]:
    """A place and what it waited for is one row, in whatever phases; most time first."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for site in report.document.get("sites", []):
        if site["origin"] != origin or site["kind"] == REJECTED:
            continue
        row = rows.setdefault(
            (site["location"], site.get("file", ""), site["kind"]), {**site, "calls": 0, "in_steps": 0, "seconds": 0.0}
        )
        row["calls"] += site["calls"]
        row["in_steps"] += site.get("calls_in_steps", 0)
        row["seconds"] += seconds(site["seconds"])
    return sorted(rows.values(), key=lambda row: -row["seconds"])


def _table(report: Report, rows: list[dict[str, Any]], top: int) -> list[Row]:
    table = [Row(_place(row), _numbers(report, row, row["kind"])) for row in rows[:top]]
    if rest := rows[top:]:
        sums = {key: sum(row[key] for row in rest) for key in ("calls", "in_steps", "seconds")}
        place = Text(count(len(rest), "more place"), style="dim")
        table.append(Row(place, _numbers(report, sums, "")))
    return table


def _place(row: dict[str, Any]) -> Text:
    place = Text(plain(row["location"]))
    if "line" in row and row.get("function"):  # else the location is the function's or the scope's own name
        place.append(f" {plain(row['function'])}", style="dim")
    return place


def _numbers(report: Report, row: dict[str, Any], kind: str) -> tuple[str, ...]:
    wall = seconds(report.document["covered_seconds"])
    return (
        plain(kind),
        f"{row['calls']:,}",
        number(row["in_steps"] / report.whole_steps) if report.whole_steps else "",
        duration(row["seconds"]),
        _share(row["seconds"] / wall) if wall > 0 else "",
    )


def _share(ratio: float) -> str:
    """With one digit behind the point in all rows; never 0 of what is not none."""
    return "< 0.1 %" if 0 < ratio < _LEAST_SHARE / 2 else f"{100 * ratio:.1f} %"


def notes(report: Report, *, has_budget: bool) -> list[str]:
    """What stands below the table: what it leaves out, and whether budgets were kept."""
    document = report.document
    lines = []
    if report.has_counted:
        lines += _not_in_steps(report)
        lines += _left_out(report)
        lines += _of_others(report)
        if not report.steps and report.waited("training")[0]:
            lines.append(
                "calls per step are not known: no agent of Gradvane was there to see steps. A Python script has one "
                "as `gradvane syncs -- python script.py`, under a launcher as `... -m gradvane run script.py`"
            )
    if (has_budget or "budget" in document) and (verdict := judge(report)):
        # Why nothing was counted stands in the headline.
        lines.append(verdict.sentence if report.has_counted else "the budget could not be judged: nothing was counted")
        lines += _spend_nothing(report)
    return lines


def _spend_nothing(report: Report) -> list[str]:
    """What is in the table, and not in the verdict on a budget."""
    kinds = [kind for kind in report.document.get("totals", {}).get("training", {}) if kind in MAY_WAIT]
    return [f"{', '.join(kinds)}: such a call only may wait, so it spends no budget"] if kinds else []


_PARTS = {
    "start_up": "before the first step ended",
    "between_steps": "between steps and after the last",
    "other_threads": "by threads that do not train",
}


def _not_in_steps(report: Report) -> list[str]:
    """Calls that are in the table, and not in its calls per step."""
    if not report.steps:
        return []
    parts = report.document.get("parts", {})
    told = [
        f"{parts[part]['calls']:,} {words}, {duration(seconds(parts[part]['seconds']))}"
        for part, words in _PARTS.items()
        if parts.get(part, {}).get("calls")
    ]
    return [f"in no step: {'; '.join(told)}"] if told else []


def _left_out(report: Report) -> list[str]:
    document = report.document
    lines = []
    if not report.is_counting:
        lines.append(f"at the end host syncs were not counted any more: {report.why()}")
    blind = seconds(document["blind_seconds"])
    covered = seconds(document["covered_seconds"])
    if document["gaps"] or blind >= max(0.001, _LEAST_SHARE * (blind + covered)):
        gaps = f", counting stopped {times(document['gaps'])}" if document["gaps"] else ""
        lines.append(f"not counted: {duration(blind)} beside the {duration(covered)} that were counted{gaps}")
    for reason, what in _LOST.items():
        if lost := document["dropped"].get(reason):
            lines.append(f"{lost:,} {what}")
    return lines


def _of_others(report: Report) -> list[str]:
    """Of Gradvane, of a profiler, and calls that did not wait."""
    document = report.document
    lines = []
    calls, blocked = report.waited("gradvane")
    if calls or report.steps:
        own = f"Gradvane's own: {count(calls, 'host sync')}" + (f", {duration(blocked)}" if calls else "")
        if report.steps:
            over = document["steps_over"]["gradvane"]
            kept = f"{count(over, 'step')} had more" if over else "no step had more"
            own += f"; budget {document['own_budget']:,} per step, {kept}"
        lines.append(own)
    calls, blocked = report.waited("profiler")
    if calls:
        lines.append(f"PyTorch's profiler's own: {count(calls, 'host sync')}, {duration(blocked)}")
    if rejected := document["totals"]["training"].get(REJECTED):
        places = [site["location"] for site in document["sites"] if site["kind"] == REJECTED]
        where = f": {', '.join(dict.fromkeys(places))}" if places else ""
        lines.append(f"{count(rejected['calls'], 'call')} refused during a graph capture, which did not wait{where}")
    return lines


def count(value: int, what: str) -> str:
    return f"{value:,} {what}" if value == 1 else f"{value:,} {what}s"


def duration(value: float) -> str:
    """850 us, 12.5 ms, 3.21 s, 4 min 10 s"""
    if not math.isfinite(value):
        return str(value)
    if value >= 59.95:  # else three digits would say 60 s
        minutes, rest = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.9995 * scale:  # else three digits would say 1e+03 of the smaller unit
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
