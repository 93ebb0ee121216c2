"""Whole outputs of commands, as people see them in terminals and in pipes, and the texts that they are compared with.

WRITE_EXPECTED=1 writes the files in expected/ anew: read every line of what it changes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import running
from pseudo_terminal import Terminal

EXPECTED = running.TESTS / "expected"
MEDIA = {"80_columns": (80, 24), "200_columns": (200, 50), "pipe": None}
Variation = tuple[str, "str | Callable[[re.Match[str]], str]"]
"""what may differ from one run to the next, or from one machine to another, and what stands for it"""


def same_width(pattern: str, filler: str) -> Variation:
    """Group 1 becomes the filler; the blanks behind it, if any, make up for it."""

    def filled(found: re.Match[str]) -> str:
        begin, end = found.start(1) - found.start(), found.end(1) - found.start()
        blanks = re.match(" *", found[0][end:])[0]
        room = max(len(filler), end - begin + len(blanks)) if blanks else len(filler)
        return found[0][:begin] + filler.ljust(room) + found[0][end + len(blanks):]

    return pattern, filled


def settled(text: str, varies: list[Variation]) -> str:
    for pattern, instead in varies:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


@dataclass
class Seen:
    """What was shown."""

    transcripts: dict[str, list[str]] = field(default_factory=lambda: {medium: [] for medium in MEDIA})
    """by medium"""
    plain: dict[str, str] = field(default_factory=dict)
    """standard output in a pipe, by heading"""
    json: dict[str, dict] = field(default_factory=dict)
    """what --json said, by command"""

    def put(self, medium: str, heading: str, text: str, status: int) -> None:
        ending = f"[exit status {status}]\n" if status else ""
        self.transcripts[medium].append(f"$ {heading}\n{text}{ending}\n")


class Shell:
    """Runs the commands, and notes what they show."""

    def __init__(self, folder: Path, seen: Seen, **environment: str) -> None:
        self.folder = folder
        self.seen = seen
        # Nothing of ours is set but where temporary files lie: options are the default ones.
        self.env = running.environment(TMPDIR=str(folder), TERM="xterm-256color", LANG="C.UTF-8", **environment)
        for name in ("GRADVANE_PORT", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            self.env.pop(name, None)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "gradvane", *words]

    def show(self, *words: str, note: str = "", media: tuple[str, ...] = tuple(MEDIA)) -> None:
        heading = " ".join(["gradvane", *words]) + note
        for medium in media:
            if MEDIA[medium] is None:
                done = subprocess.run(self.command(*words), cwd=self.folder, env=self.env, capture_output=True,
                                      text=True, timeout=120)
                self.note_pipe(heading, done.stdout, done.stderr, done.returncode)
            else:
                with self.terminal(medium, *words) as terminal:
                    self.note_screen(medium, heading, terminal, terminal.end())

    def read(self, *words: str, says: str = "") -> None:
        """Of --json, which is for programs; `says`: what stands beside it on the standard error."""
        done = subprocess.run(self.command(*words), cwd=self.folder, env=self.env, capture_output=True, text=True,
                              timeout=120)
        assert (done.returncode, done.stderr) == (0, says)
        self.seen.json[words[0]] = json.loads(done.stdout)

    def terminal(self, medium: str, *words: str) -> Terminal:
        columns, rows = MEDIA[medium]
        return Terminal(self.command(*words), columns=columns, rows=rows, cwd=self.folder, env=self.env)

    def note_screen(self, medium: str, heading: str, terminal: Terminal, status: int) -> None:
        assert terminal.is_as_it_was()
        assert terminal.screen.wrapped == 0, f"wider than the terminal:\n{terminal.screen.text()}"
        self.seen.put(medium, heading, terminal.screen.text(), status)

    def note_pipe(self, heading: str, stdout: str, stderr: str, status: int) -> None:
        assert "\x1b" not in stdout + stderr
        self.seen.plain[heading] = stdout
        said = "".join(f"[stderr] {line}\n" for line in stderr.splitlines())
        self.seen.put("pipe", heading, stdout + said, status)


def expected(name: str, shown: str) -> list[str]:
    """The lines that were read and found good."""
    path = EXPECTED / f"{name}.txt"
    if "WRITE_EXPECTED" in os.environ:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    return path.read_text().splitlines()
