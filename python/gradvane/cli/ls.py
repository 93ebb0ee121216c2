"""gradvane ls: the live runs on this machine."""

from __future__ import annotations

import argparse
import json
import time

from gradvane.cli.addresses import add_directories_to
from gradvane.cli.agent_api import plain
from gradvane.cli.live_runs import LiveRun, live_runs
from gradvane.cli.telling import say, write

_HEAD = ("RUN", "RANK", "STATE", "STEP", "AGE", "URL")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gradvane ls", description="Lists your live runs on this machine.", allow_abbrev=False)
    how = made.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print a JSON array")
    how.add_argument("--names", action="store_true", help="print the names alone, each once")
    add_directories_to(made)
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    entries = live_runs(options.dir)
    if options.json:
        write(json.dumps([_as_json(entry) for entry in entries], indent=2))
    elif options.names:
        write("".join(f"{plain(name)}\n" for name in dict.fromkeys(entry.run for entry in entries)))
    elif entries:
        write(_table([_HEAD, *(_row(entry, time.time()) for entry in entries)]))
    else:
        say("ls", "no run is live")
    return 0


def _as_json(entry: LiveRun) -> dict[str, object]:
    return {"run": entry.run, "run_id": entry.run_id, "rank": entry.rank, "world_size": entry.world_size,
            "state": entry.state, "step": _step(entry), "url": entry.url, "pid": entry.pid, "started": entry.started,
            "directory": entry.directory, "answers": entry.status is not None}


def _step(entry: LiveRun) -> int | None:
    step = ((entry.status or {}).get("latest") or {}).get("run_step")
    return step if isinstance(step, int) else None


def _row(entry: LiveRun, now: float) -> tuple[str, ...]:
    state = plain(entry.state) if entry.status is not None else "no answer"
    step = _step(entry)
    return (plain(entry.run), f"{entry.rank} of {entry.world_size}", state, "-" if step is None else f"{step:,}",
            age(now - entry.started), plain(entry.url))


def _table(rows: list[tuple[str, ...]]) -> str:
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows)]
    lines = ("  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def age(seconds: float) -> str:
    """45s, 12m, 3h 5m, 2d 4h"""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m" if minutes else f"{rest}s"
