"""gradvane status and gradvane top: how a run is doing, read from its endpoint."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from gradvane.cli import addresses
from gradvane.cli.agent_api import UnreachableError, fetch, plain
from gradvane.cli.argument_types import seconds
from gradvane.cli.run_view import MOST_PARAMS, view
from gradvane.cli.run_view import number as number  # for the tables of `gradvane syncs`
from gradvane.cli.tables.severities import SEVERITY
from gradvane.cli.telling import complain, say, write

UNHEALTHY = 1
_CHECKED = """ With --check: 1 if no agent answers, if the run has failed or stalled, or if an incident with a
critical alert is open."""
_OTHER_TYPES = (AttributeError, TypeError, ValueError)
"""what something raises that is not what an agent answers"""
_PARAMS = f"/api/v1/params?sort=worst&limit={MOST_PARAMS}"


def parser(command: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"gradvane {command}",
        description="How a run is doing." if command == "status" else "How a run is doing, live; ends with ctrl-c.",
        epilog="Exit status: 0, or 2 if no agent answers." + (_CHECKED if command == "status" else ""),
        allow_abbrev=False,
    )
    addresses.add_to(made)
    if command == "status":
        made.add_argument("--json", action="store_true", help="print the answer of /api/v1/status")
        made.add_argument("--check", action="store_true", help="for probes: one line, and an exit status")
    else:
        made.add_argument("--every", type=seconds, default=1.0, metavar="SECONDS", help="default %(default)s")
    return made


def main(command: str, arguments: list[str]) -> int:
    options = parser(command).parse_args(arguments)
    try:
        url = addresses.url_of(options.run, options.rank, options.dir)
        if command == "top":
            return _top(url, options.every)
        status = fetch(url, "/api/v1/status")
    except (UnreachableError, addresses.UnknownRunError) as error:
        if command == "status" and options.check:
            say(command, str(error))
            return UNHEALTHY
        return complain(command, str(error))
    if options.check:
        try:
            why = problems(status)
        except _OTHER_TYPES:
            why = ["its answer is none of an agent of Gradvane"]
        name = plain(f"{status['run']}, rank {status.get('rank', 0)}")
        write(f"{name}: {plain('; '.join(why))}" if why else f"{name}: {plain(status.get('state', '?'))}")
        return UNHEALTHY if why else 0
    if options.json:
        write(json.dumps(status, indent=2))
        return 0
    try:
        Console(highlight=False).print(view(status, {}))
    except _OTHER_TYPES:
        return complain(command, f"what answers at {url} is no agent of Gradvane")
    return 0


def problems(status: dict[str, Any]) -> list[str]:
    """Why a run needs someone to look at it: it has failed or stalled, or an incident is open whose alert is
    critical."""
    found = []
    if status.get("state") in ("failed", "stalled"):
        reason = status.get("reason")
        found.append(f"{status['state']} ({reason})" if reason else str(status["state"]))
    for incident in status.get("incidents") or ():
        if "closed_at" not in incident and SEVERITY.get(incident.get("class"), "warning") == "critical":
            found.append(f"{incident['class']} since step {incident.get('first_step', '?')}")
    return found


def _top(url: str, every: float) -> int:
    """Until ctrl-c, or the run has ended and its endpoint has gone. What it said last stays on the terminal."""
    console = Console(highlight=False)
    seen = [fetch(url, "/api/v1/status"), fetch(url, _PARAMS)]

    def shown() -> Panel:
        return view(seen[0], seen[1], console)

    has_gone = False
    try:
        if console.is_terminal and not console.is_dumb_terminal:
            # On a screen of its own: what is typed meanwhile, and a terminal that changes its size, leave nothing behind.
            with Live(get_renderable=shown, console=console, screen=True, auto_refresh=False) as live:
                live.refresh()
                _watch(url, every, seen, live.refresh)
        else:
            _watch(url, every, seen, lambda: None)
        has_gone = True
    except KeyboardInterrupt:
        pass
    console.print(shown())
    if has_gone:
        say("top", "the agent has gone; this is the last it said")
    return 0


def _watch(url: str, every: float, seen: list[dict[str, Any]], draw: Callable[[], None]) -> None:
    """Until three requests in a row had no answer."""
    gone = 0
    while gone < 3:
        time.sleep(every)
        try:
            seen[:] = fetch(url, "/api/v1/status"), fetch(url, _PARAMS)
            gone = 0
        except UnreachableError:
            gone += 1
        draw()  # also where nothing is new: the terminal may have another size
