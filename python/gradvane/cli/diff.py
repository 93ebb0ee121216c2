"""gradvane diff: two recordings, or two moments, side by side."""

from __future__ import annotations

import argparse
import os
from types import ModuleType

from gradvane.cli import recordings, telling

_DESCRIPTION = """\
Says where two recordings part: the first step in which the loss or a norm differs, the settings and models, and
which groups and parameters are farthest apart in that step. A and B are .gvrec files; FILE@STEP asks for the
groups and parameters of a step, so that two moments of one run can be compared as well.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gradvane diff",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    made.add_argument("a", metavar="A[@STEP]")
    made.add_argument("b", metavar="B[@STEP]")
    made.add_argument("--json", action="store_true", help="the same for programs")
    made.add_argument("--tolerance", type=float, default=1e-3, metavar="R", help="relative; less is taken for "
                        "rounding; default %(default)s")
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if not options.tolerance >= 0:
        parser().error("--tolerance is 0 or more")
    return recordings.told("diff", lambda native: _diff(native, options))


def moment(text: str) -> tuple[str, int | None]:
    """FILE@STEP taken apart; a file that is called so goes before that."""
    path, at, step = text.rpartition("@")
    if not at or not path or not step.isascii() or not step.isdigit() or os.path.exists(text):
        return text, None
    return path, min(int(step), 2**63 - 1)


def _diff(native: ModuleType, options: argparse.Namespace) -> int:
    (a, step_a), (b, step_b) = moment(options.a), moment(options.b)
    say = telling.write if options.json else telling.tell
    say(native.diff(os.fsencode(a), step_a, os.fsencode(b), step_b, options.json, options.tolerance))
    return 0
