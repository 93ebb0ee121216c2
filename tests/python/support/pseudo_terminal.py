"""A command in a terminal of so many columns, and what a person sees of it there."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)")
_UNFINISHED = re.compile(r"\x1b[^A-Za-z]*$")


class Screen:
    """What the commands ask of a terminal, and no more: what it does not know is refused, so nothing is overlooked."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[str] = [""]
        self.other: Screen | None = None
        """the alternate screen, while it is shown"""
        self.wrapped = 0
        """times that a line went on in the next row, for it was wider than the terminal"""
        self.is_cursor_hidden = False
        self._row = self._column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished.group() if unfinished else ""
        at, end = 0, len(text) - len(self._rest)
        while at < end:
            if found := _CONTROL.match(text, at):
                self._control(found[1], found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def text(self) -> str:
        """What is seen, without the empty end of each row."""
        if self.other:
            return self.other.text()
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n") + "\n"

    def _control(self, numbers: str, what: str | None) -> None:
        if what is None or what == "m":  # links, colours
            return
        if what in "hl" and numbers == "?1049":
            self.other = Screen(self.columns) if what == "h" else None
            return
        if what in "hl" and numbers == "?25":
            self.is_cursor_hidden = what == "l"
            return
        if self.other:
            return self.other._control(numbers, what)
        count = int(numbers or 1) if numbers.isdigit() or not numbers else 0
        if what == "A":
            self._row = max(0, self._row - count)
        elif what == "K" and numbers == "2":
            self.rows[self._row] = ""
        elif what == "H" and not numbers:
            self._row = self._column = 0
        else:
            raise AssertionError(f"this terminal does not know ESC [ {numbers} {what}")

    def _put(self, character: str) -> None:
        if self.other:
            return self.other._put(character)
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._next_row()
        else:
            assert character.isprintable(), repr(character)
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self._column + width > self.columns:
                self.wrapped += 1
                self._next_row()
                self._column = 0
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += width

    def _next_row(self) -> None:
        self._row += 1
        while len(self.rows) <= self._row:
            self.rows.append("")


class Terminal:
    """A command with a terminal of its own, as a shell gives it one: Ctrl-C is a key."""

    def __init__(self, command: list[str], *, columns: int, rows: int = 50, cwd: Path, env: dict[str, str]) -> None:
        self.screen = Screen(columns)
        self._decoded = codecs.getincrementaldecoder("utf-8")()
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.settings = termios.tcgetattr(self._theirs)
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=self._theirs, stdout=self._theirs, stderr=self._theirs,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def wait_for(self, is_there: Callable[[str], bool], seconds: float = 60) -> str:
        """The screen once it shows what is waited for, and is quiet."""
        until = time.monotonic() + seconds
        while not is_there(self.screen.text()):
            assert time.monotonic() < until and self._process.poll() is None, self.screen.text()
            self._read(0.1)
        while self._read(0.2):  # the rest of the frame
            pass
        return self.screen.text()

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def end(self, seconds: float = 60) -> int:
        """Its exit status, once all that it wrote has been read."""
        until = time.monotonic() + seconds
        while self._process.poll() is None:
            assert time.monotonic() < until, self.screen.text()
            self._read(0.1)
        while self._read(0.1):
            pass
        return self._process.returncode

    def is_as_it_was(self) -> bool:
        """The terminal: its settings, and its cursor."""
        return termios.tcgetattr(self._theirs) == self.settings and not self.screen.is_cursor_hidden

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            self.screen.feed(self._decoded.decode(os.read(self._ours, 65536)))
        return True
