"""Which endpoint a command speaks to: an address, or the name of a run on this machine."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from gradvane.cli.live_runs import LiveRun, live_runs, read_endpoint_files

DEFAULT = "http://127.0.0.1:9464"
_HAS_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):\d+(/.*)?")


class UnknownRunError(Exception):
    """No live run, or several, can be meant; the message says which there are."""


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", help="name or run_id of a live run on this machine, or the address of an agent; "
                        f"default: the only live run, else {DEFAULT}")
    parser.add_argument("--rank", type=int, metavar="R", help="of a run with several processes; default: the lowest")
    add_directories_to(parser)


def add_directories_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", action="append", default=[], metavar="DIR", help="look for run directories here too; "
                        "may be repeated. GRADVANE_RUN_DIR is looked in anyway")


def url_of(word: str | None, rank: int | None = None, directories: Iterable[str] = ()) -> str:
    """Without a slash at its end. Raises UnknownRunError."""
    has_scheme = word is not None and ("://" in word or word.startswith("unix:"))
    if word and (has_scheme or _HAS_PORT.fullmatch(word) or word == "localhost"):
        read_endpoint_files(directories)  # for the token, if it is that of a run on this machine
        return (word if has_scheme else f"http://{word}").rstrip("/")
    entries = live_runs(directories)
    if not word and not entries:
        return DEFAULT
    found = [entry for entry in entries if not word or word in (entry.run, entry.run_id)]
    runs = sorted({(entry.run, entry.run_id) for entry in found})
    if not found:
        raise UnknownRunError(f"no live run on this machine is called '{word}'; {_which(entries)}; "
                              "an address looks like http://127.0.0.1:9464")
    if len({run for run, _ in runs}) > 1 or (len(runs) > 1 and len({entry.rank for entry in found}) < len(found)):
        raise UnknownRunError(f"{len(runs)} runs are live, so give one of their names: "
                              + ", ".join(f"{run} ({run_id})" for run, run_id in runs))
    ranks = {entry.rank: entry for entry in found}
    if rank is not None and rank not in ranks:
        there = ", ".join(str(number) for number in sorted(ranks))
        raise UnknownRunError(f"no rank {rank} of this run is live on this machine; there is {there}")
    return ranks[min(ranks) if rank is None else rank].url


def _which(entries: list[LiveRun]) -> str:
    names = sorted({entry.run for entry in entries})
    return f"live are: {', '.join(names)}" if names else "none is live"
