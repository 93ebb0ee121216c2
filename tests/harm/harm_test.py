"""Every program of the table ends, prints, leaves and trains the same, plain and watched in three ways."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import four_ways
import table
from comparison import differences, was_watched
from four_ways import Outcome
from program import Program, script

GROUP = os.environ.get("HARM_GROUP", "")
"""one of the table's; all of them if it is empty, but for devices, which cuda_test.py runs"""
ROWS = [(group, key, program.name, way) for group in table.GROUPS if GROUP in ("", group) and group != "devices"
        for key, programs in table.processes(group).items() for program in programs for way in program.ways[1:]]


AT_ONCE = {"children": 4, "signals": 2}
"""processes of a group, where most of them wait most of the time"""


RUNS = 6
"""of a program that torch crashes by chance, at most"""


def outcome(group: str, key: str, way: str) -> Outcome:
    return started(group)[key].result()[way]


@functools.cache
def started(group: str) -> dict[str, Future[dict[str, Outcome]]]:
    pool = ThreadPoolExecutor(AT_ONCE.get(group, 1))
    return {key: pool.submit(outcomes, group, key) for key in table.processes(group)}


def outcomes(group: str, key: str) -> dict[str, Outcome]:
    """By way; a watched one has as long as the plain one took, and what it may take besides."""
    programs = table.processes(group)[key]
    crashes = {program.crash_by_chance for program in programs if not program.crash_is_usual} - {""}
    found: dict[str, Outcome] = {}
    for way in sorted({way for program in programs for way in program.ways}, key=lambda way: way != "plain"):
        limit = four_ways.LIMIT
        if found:
            limit = found["plain"].seconds + max(program.seconds for program in programs)
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                found[way] = four_ways.run(programs[0], way, script(programs), Path(folder) / "f", limit,
                                           whole_end=group == "endings")
            if not crashes.intersection(found[way].stderr):
                break
    return found


@pytest.mark.parametrize(("group", "key", "name", "way"), ROWS, ids=[f"{row[2]} [{row[3]}]" for row in ROWS])
def test_nobody_can_tell_a_watched_program_from_a_plain_one(group: str, key: str, name: str, way: str):
    programs = table.processes(group)[key]
    program = next(one for one in programs if one.name == name)
    require(program)
    plain, watched = outcome(group, key, "plain"), outcome(group, key, way)
    found = differences(program, way, plain, watched, name if len(programs) > 1 else None)
    assert was_watched(program, plain, watched), f"{program.name}, {way}: no line of ours"
    assert not found, f"{program.name}, {way}:\n" + "\n".join(found)


def require(program: Program) -> None:
    if program.place.user is not None and os.geteuid() != 0:
        pytest.skip("only root may become another user")


