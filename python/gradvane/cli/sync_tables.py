"""Host syncs for people to read: a table for each process, what it adds up to, and what it leaves out."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradvane.cli.agent_api import plain
from gradvane.cli.sync_reports import REJECTED, Report, judge, seconds, times
from gradvane.cli.terminal import number

_WIDE = 160
"""columns where nobody has a terminal"""
_MANY_POLLS = 1000
_LOST = {
    "threads": "host syncs of threads that there was no room for are not counted",
    "sites": "host syncs are counted without their place, for want of room",
    "events": "host syncs are counted without their step",
    "unbalanced": "calls were seen to begin or to end, not both, and are not counted",
}


def console() -> Console:
    is_wide = not sys.stderr.isatty() and "COLUMNS" not in os.environ
    return Console(stderr=True, highlight=False, width=_WIDE if is_wide else None)


def show(to: Console, report: Report, *, top: int, has_budget: bool) -> None:
    to.print()
    to.print(Text(plain(headline(report)), style="bold"), soft_wrap=True)
    if rows := _rows(report, "training"):
        to.print(_table(report, rows, top))
    for note in notes(report, has_budget=has_budget):
        to.print(Text(plain(note)), soft_wrap=True)


def headline(report: Report) -> str:
    if not report.has_counted:
        return f"{report.name}: host syncs were not counted: {report.why()}"
    calls, blocked = report.waited("training")
    if report.steps:
        what = f"{count(report.steps, 'step')}, {number(calls / report.steps)} host syncs a step"
    else:
        what = count(calls, "host sync")
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
            (site["location"], site.get("file", ""), site["kind"]), {**site, "calls": 0, "seconds": 0.0}
        )
        row["calls"] += site["calls"]
        row["seconds"] += seconds(site["seconds"])
    return sorted(rows.values(), key=lambda row: -row["seconds"])


def _table(report: Report, rows: list[dict[str, Any]], top: int) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("site", overflow="fold")
    table.add_column("kind", no_wrap=True)
    for name in ("calls", "calls per step", "time blocked", "share of wall time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[:top]:
        site = Text(plain(row["location"]))
        if row.get("function") and row["function"] not in row["location"]:
            site.append(f" {plain(row['function'])}", style="dim")
        table.add_row(site, Text(plain(row["kind"])), *_numbers(report, row["calls"], row["seconds"]))
    if rest := rows[top:]:
        calls, blocked = sum(row["calls"] for row in rest), sum(row["seconds"] for row in rest)
        table.add_row(Text(f"{count(len(rest), 'more place')}", style="dim"), "", *_numbers(report, calls, blocked))
    return table


def _numbers(report: Report, calls: int, blocked: float) -> list[str]:
    wall = seconds(report.document["covered_seconds"])
    return [
        f"{calls:,}",
        number(calls / report.steps) if report.steps else "",
        duration(blocked),
        f"{100 * blocked / wall:.1f} %" if wall > 0 else "",
    ]


def notes(report: Report, *, has_budget: bool) -> list[str]:
    """What stands below the table: what it leaves out, and whether budgets were kept."""
    document = report.document
    lines = []
    if report.has_counted:
        lines += _left_out(report)
        lines += _of_others(report)
        if not report.steps and report.waited("training")[0]:
            lines.append(
                "calls per step are not known: no agent of Gradvane was there to see steps. A Python script has one "
                "as `gradvane syncs -- python script.py`, under a launcher as `... -m gradvane run script.py`"
            )
    if (has_budget or "budget" in document) and (verdict := judge(report)):
        lines.append(verdict.sentence)
    return lines


def _left_out(report: Report) -> list[str]:
    document = report.document
    lines = []
    if not report.is_counting:
        lines.append(f"at the end host syncs were not counted any more: {report.why()}")
    blind = seconds(document["blind_seconds"])
    if document["gaps"] or blind >= 0.001:
        gaps = f", counting stopped {times(document['gaps'])}" if document["gaps"] else ""
        covered = duration(seconds(document["covered_seconds"]))
        lines.append(f"not counted: {duration(blind)} beside the {covered} that were counted{gaps}")
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
            own += f"; {document['own_budget']:,} a step are its budget, {kept}"
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
    if value >= 60:
        minutes, rest = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
