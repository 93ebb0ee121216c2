"""gradvane status and gradvane top: how a run is doing, read from its endpoint."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gradvane.cli.agent_api import UnreachableError, fetch, plain

_WORST = 15
"""parameters shown"""


def main(command: str, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"gradvane {command}",
        description="How a run is doing." if command == "status" else "How a run is doing, live; ends with ctrl-c.",
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:9464", help="of the agent; default %(default)s")
    if command == "status":
        parser.add_argument("--json", action="store_true", help="print what /api/v1/status says")
    else:
        parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="default %(default)s")
    options = parser.parse_args(arguments)
    url = options.url if "://" in options.url else f"http://{options.url}"
    url = url.rstrip("/")
    try:
        if command == "top":
            return _top(url, max(options.every, 0.1))
        status = fetch(url, "/api/v1/status")
    except UnreachableError as error:
        sys.stderr.write(f"gradvane {command}: {error}\n")
        return 1
    if options.json:
        sys.stdout.write(json.dumps(status, indent=2) + "\n")
    else:
        Console(highlight=False).print(view(status, {}))
    return 0


def _top(url: str, every: float) -> int:
    """Until ctrl-c, or the run has ended and its endpoint has gone."""
    status = fetch(url, "/api/v1/status")
    params = fetch(url, "/api/v1/params")
    gone = 0
    try:
        with Live(view(status, params), console=Console(highlight=False), refresh_per_second=8) as live:
            while gone < 3:
                time.sleep(every)
                try:
                    status, params = fetch(url, "/api/v1/status"), fetch(url, "/api/v1/params")
                    gone = 0
                    live.update(view(status, params))
                except UnreachableError:
                    gone += 1
        sys.stderr.write("gradvane top: the agent has gone; this is the last it said\n")
    except KeyboardInterrupt:
        pass
    return 0


def view(status: dict[str, Any], params: dict[str, Any]) -> Panel:
    """One screen: the run in words, its numbers, its worst parameters."""
    latest = status.get("latest") or {}
    state = plain(status.get("state", "?"))
    colour = {"running": "green", "finished": "cyan", "starting": "yellow", "stalled": "yellow"}.get(state, "red")
    words = Text(state, style=f"bold {colour}")
    if status.get("reason"):
        words.append(f"  {plain(status['reason'])}", style="default")
    if first := status.get("nonfinite", {}).get("first"):
        words.append(f"\nfirst non-finite: {plain(_blame(first))}", style="bold red")
    numbers = Table.grid(padding=(0, 3))
    for name, value in _numbers(status, latest):
        numbers.add_row(Text(name, style="dim"), _cell(value))
    parts: list[Any] = [words, numbers]
    if rows := params.get("params"):
        parts.append(_worst(rows))
    title = _cell(f"{status.get('run', '?')}  rank {status.get('rank', 0)}")
    return Panel(Group(*parts), title=title, title_align="left")


def _cell(text: object, style: str = "") -> Text:
    """Names are shown as they are: rich takes [brackets] in a str for markup."""
    return Text(plain(text), style=style)


def _blame(first: dict[str, Any]) -> str:
    site = {"grad": "gradient"}.get(first.get("site", ""), first.get("site", "?"))
    where = f" of {first['param']}, element {first.get('element', '?')}," if first.get("param") else ""
    return f"{first.get('kind', '?')} in the {site}{where} at step {first.get('run_step', '?')}"


def _numbers(status: dict[str, Any], latest: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("step", number(latest.get("run_step", latest.get("step"))))]
    if seconds := latest.get("step_seconds"):
        rows.append(("steps / s", number(1 / seconds)))
    for name, key in (
        ("loss", "loss"),
        ("gradient norm", "grad_norm"),
        ("after clipping", "grad_norm_at_step"),
        ("learning rate", "lr"),
        ("loss scale", "loss_scale"),
    ):
        if latest.get(key) is not None:
            rows.append((name, number(latest[key])))
    bad = status.get("nonfinite", {}).get("steps", {})
    if any(bad.values()):
        rows.append(("bad steps", ", ".join(f"{site} {number(count)}" for site, count in bad.items() if count)))
    if status.get("skipped_steps"):
        rows.append(("skipped steps", number(status["skipped_steps"])))
    if status.get("incidents_total"):
        rows.append(("incidents", number(status["incidents_total"])))
    return rows


def _worst(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("parameter", "state", "gradient norm", "largest", "zeros", "update ratio"):
        table.add_column(name, justify="left" if name in ("parameter", "state") else "right", no_wrap=True)
    for row in rows[:_WORST]:
        grad = row.get("grad") or {}
        state = str(row.get("state", ""))
        zeros = f"{100 * grad['zero_ratio']:.0f} %" if "zero_ratio" in grad else ""
        table.add_row(
            _cell(row.get("name", "?")),
            _cell(state, "bold red" if state == "nonfinite" else ""),
            _cell(number(grad.get("norm"))),
            _cell(number(grad.get("abs_max"))),
            zeros,
            _cell(number((row.get("update_ratio") or {}).get("value"))),
        )
    return table


def number(value: Any) -> str:
    """For people: four digits, and what was not measured is blank."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(number(one) for one in value)
    if isinstance(value, str):  # "nan", "inf": JSON has no such numbers
        return value
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e6):
        return f"{int(value):,}"
    return f"{value:.4g}"
