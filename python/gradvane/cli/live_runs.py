"""The live runs of this user on this machine, from their endpoint files."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradvane.cli.agent_api import UnreachableError, fetch, is_address, remember_socket, remember_token

_LONGEST_FILE = 64 * 1024
_ANSWER_WITHIN = 2.0
"""seconds: a process that is stopped does not answer at all. The whole answer has twice as long"""
_SLACK = 2.0
"""seconds between two clocks of one machine"""
_ENDED = ("finished", "failed")


@dataclass(frozen=True)
class LiveRun:
    """One process of a run, as its endpoint file has it. `started`: seconds since the epoch."""

    run: str
    run_id: str
    rank: int
    world_size: int
    url: str
    node_url: str
    """of the port that the ranks of one machine share; else the same as `url`"""
    host: str
    """name of the machine; empty: not known"""
    pid: int
    state: str
    started: float
    directory: str
    status: dict[str, Any] | None = None
    """the endpoint's answer; None if there was none"""


def live_runs(directories: Iterable[str] = ()) -> list[LiveRun]:
    """Every process of a run that is live, in the order of name, run_id and rank. It looks in the default
    directories, in GRADVANE_RUN_DIR and in `directories`: run directories, or those above them.

    What a dead process left is not in it: a file counts if its process runs on this machine and began before the
    file's start time, or if the endpoint answers as the process that the file names.
    """
    found = {(entry.url, entry.pid): entry for entry in _entries(directories)}
    if not found:
        return []
    with ThreadPoolExecutor(min(32, len(found))) as pool:
        entries = [entry for entry in pool.map(_with_status, found.values()) if entry is not None]
    return sorted(entries, key=lambda entry: (entry.run, entry.run_id, entry.rank))


def read_endpoint_files(directories: Iterable[str] = ()) -> None:
    """So that the tokens of runs on this machine are known."""
    for _ in _entries(directories):
        pass


def _with_status(entry: LiveRun) -> LiveRun | None:
    status = None
    try:
        status = fetch(entry.url, "/api/v1/status", timeout=_ANSWER_WITHIN, within=2 * _ANSWER_WITHIN)
    except UnreachableError:
        pass
    process = (status or {}).get("process") or {}
    if process.get("pid") == entry.pid and process.get("run_id") == entry.run_id:
        return LiveRun(**{**vars(entry), "status": status, "state": str((status or {}).get("state", entry.state))})
    return entry if _is_here(entry) and entry.state not in _ENDED and _runs(entry.pid, entry.started) else None


def _is_here(entry: LiveRun) -> bool:
    """Whether it says that it runs on this machine, or does not say where."""
    return entry.host in ("", socket.gethostname())


def _runs(pid: int, started: float) -> bool:
    """Whether the process that had `pid` at that time is alive. A later one with its number began later."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        booted = next(int(line.split()[1]) for line in open("/proc/stat", encoding="ascii") if line.startswith("btime"))
    except (OSError, StopIteration, IndexError, ValueError):
        return False
    began = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in "ZXx" and began <= started + _SLACK


def _entries(directories: Iterable[str]) -> Iterator[LiveRun]:
    for directory in _run_directories(directories):
        try:
            names = [entry.name for entry in os.scandir(directory)]
        except OSError:
            continue
        for name in names:
            if name.startswith("endpoint.rank") and name.endswith(".json"):
                entry = _read(directory / name)
                if entry is not None:
                    yield entry


def _run_directories(directories: Iterable[str]) -> Iterator[Path]:
    for base in dict.fromkeys([os.environ.get("TMPDIR") or "/tmp", "/tmp"]):
        for above in _folders(Path(base)):
            if above.name.split(".")[0] == f"gradvane-{os.geteuid()}":
                yield from _folders(above)
    named = os.environ.get("GRADVANE_RUN_DIR")
    for given in [*([named] if named else []), *directories]:
        yield Path(given)
        yield from _folders(Path(given))


def _folders(path: Path) -> Iterator[Path]:
    """Real directories of this user: others may write to /tmp too."""
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                yield Path(entry.path)
        except OSError:
            continue


def _read(path: Path) -> LiveRun | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        values = json.loads(os.read(descriptor, _LONGEST_FILE))
        entry = LiveRun(
            run=str(values["run"]), run_id=str(values["run_id"]), rank=int(values["rank"]),
            world_size=int(values["world_size"]), url=str(values["url"]), node_url=str(values.get("node_url") or values["url"]), host=str(values.get("host", "")),
            pid=int(values["pid"]), state=str(values["state"]), started=float(values["started"]), directory=str(path.parent),
        )
        is_known = is_address(entry.url) and is_address(entry.node_url)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, AttributeError):
        return None
    finally:
        os.close(descriptor)
    # What a dead run has left may be another's port by now, who must not get the token.
    may_be_there = is_known and (not _is_here(entry) or _runs(entry.pid, entry.started))
    if may_be_there and isinstance(token := values.get("token"), str):
        remember_token(entry.url, token)
        remember_token(entry.node_url, token)
    if is_known and isinstance(name := values.get("socket"), str) and "/" not in name:
        remember_socket(entry.url, str(path.parent), name)
    return entry if is_known else None
