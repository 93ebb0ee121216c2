"""How the commands speak to people: folded to the terminal, and as they are to a pipe."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import Any, TextIO, cast

from gradvane.cli.agent_api import plain

CANNOT = 2
"""the exit status of a command that could not do what it was asked for"""


class OutputError(Exception):
    """The standard output takes no more; the text is one sentence."""


class _Stream:
    """A standard stream. Where it is closed, or a pipe without a reader, what is written goes nowhere: the exit status
    still counts. What its encoding lacks is shown as its code. `reports`: write() and flush() raise OutputError for a
    full disk and the like, once."""

    def __init__(self, stream: TextIO | None, reports: bool) -> None:
        self._reports = reports
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        self._stream = _nowhere() if stream is None else stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._stream = _nowhere()
        if self._reports and not isinstance(error, BrokenPipeError):
            raise OutputError(f"the output cannot be written: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def begin() -> None:
    """Of a command: what it writes goes through here."""
    sys.stdout, sys.stderr = cast("TextIO", _Stream(sys.stdout, True)), cast("TextIO", _Stream(sys.stderr, False))


def write(text: str) -> None:
    """With a line feed at its end, and at once."""
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    write(_for(sys.stdout, text))


def say(command: str, what: str) -> None:
    """On the standard error."""
    sys.stderr.write(_for(sys.stderr, f"gradvane {command}: {plain(what)}\n"))


def complain(command: str, what: str) -> int:
    """The exit status."""
    say(command, what)
    return CANNOT


def folded(line: str, width: int) -> str:
    """At spaces, behind a comma or a full stop where one is near the end; what goes on is further in than it began. A
    word that is wider than a line, as a path may be, stays whole: so it can be copied."""
    from rich.cells import cell_len  # here alone: recordings are read without it where nothing is folded

    begin = len(line) - len(line.lstrip(" "))
    rows = []
    while cell_len(line) > width and line.strip():
        spaces = [i for i, c in enumerate(line) if c == " " and line[:i].strip()]
        fitting = [i for i in spaces if cell_len(line[:i]) <= width]
        clauses = [i for i in fitting if line[i - 1] in ",;." and i > 0.75 * width]
        at = (clauses or fitting or [min(spaces, default=len(line))])[-1]
        rows.append(line[:at].rstrip())
        line = " " * (begin + 2) + line[at:].lstrip(" ")
    return "\n".join([*rows, line] if line.strip() or not rows else rows)


def _for(stream: TextIO, text: str) -> str:
    """On a terminal no line is wider than that is."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "".join(folded(line, width) + "\n" for line in text.splitlines())
