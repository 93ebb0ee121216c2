"""The suite is able to fail: a stand-in that harms the program on purpose is found out, and by the right sentence."""

from __future__ import annotations

import functools
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import four_ways
from comparison import differences, without_cupti
from four_ways import Outcome
from program import TERMINATED, Place, Program, script

HARMFUL = Path(__file__).parent / "harmful"
PROGRAM = Program("a training with a child", """
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        time.sleep(60)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    tiny.train(model, optimizer)
    """, seconds=20)
FOUND = {
    "keeps SIGTERM": ["standard output: [1] plain '-15', watched '-14'", "signal handlers"],
    "keeps SIGTERM, in C": ["standard output: [1] plain '-15', watched '-14'"],
    "draws a random number": ["random numbers", "weights"],
    "changes gradients": ["weights"],
    "leaves an import hook": ["import system"],
    "leaves a descriptor": ["descriptors"],
    "leaves a file": ["files"],
    "leaves a thread": ["threads"],
    "leaves a process": ["processes left behind"],
    "leaves a variable": ["environment"],
    "leaves a warning filter": ["hooks of the interpreter"],
    "leaves an excepthook": ["hooks of the interpreter"],
    "prints": ["standard output"],
    "says something on the standard error": ["standard error"],
    "ends with another status": ["end: plain 'exit status 0', watched 'exit status 1'"],
    "holds up the end": ["end: plain 'exit status 0', watched 'still there"],
}


@functools.cache
def outcome(way: str, harm: str) -> Outcome:
    program = replace(PROGRAM, place=Place(environment={"HARM": harm}))
    with tempfile.TemporaryDirectory() as folder:
        return four_ways.run(program, way, script((program,)), Path(folder) / "f", 40, HARMFUL)


def found(way: str, harm: str) -> list[str]:
    plain = outcome("plain", "none")
    harmed = outcome(way, harm)
    for look in (*plain.looks, *harmed.looks):
        look["environment"].pop("HARM", None)
    return differences(PROGRAM, way, plain, harmed)


@pytest.mark.parametrize("harm", FOUND)
def test_each_kind_of_harm_is_found_and_named(harm: str):
    sentences = found("attach", harm)
    for expected in FOUND[harm]:
        assert any(sentence.startswith(expected) for sentence in sentences), f"{expected!r} is not in {sentences}"


def test_what_a_live_agent_may_show_it_may_not_leave_behind():
    assert any(sentence.startswith("signals") for sentence in found("attach, detach", "keeps SIGTERM, in C"))


def test_gradvane_run_is_held_to_the_same():
    assert any(sentence.startswith("hooks of the interpreter") for sentence in found("run", "leaves an excepthook"))


def test_two_plain_runs_of_a_program_differ_in_nothing():
    with tempfile.TemporaryDirectory() as folder:
        again = four_ways.run(PROGRAM, "plain", script((PROGRAM,)), Path(folder) / "f", package=HARMFUL)
    for look in again.looks:
        look["environment"].pop("HARM", None)
    assert differences(PROGRAM, "attach, detach", outcome("plain", "none"), again) == []


def ended(end: str, *stderr: str) -> Outcome:
    return Outcome(end, 0.0, [], list(stderr), [], [], {}, {})


@pytest.mark.parametrize(("watched", "is_found"), [
    (ended("exit status 0"), False),
    (ended("killed by SIGABRT", TERMINATED), False),
    (ended("killed by SIGABRT"), True),
    (ended("killed by SIGABRT", "free(): invalid pointer"), True),
    (ended("killed by SIGSEGV", TERMINATED), True),
    (ended("still there"), True),
])
def test_of_a_usual_crash_only_that_crash_is_excused(watched: Outcome, is_found: bool):
    crashing = replace(PROGRAM, crash_by_chance=TERMINATED, crash_is_usual=True)
    for plain in (ended("exit status 0"), ended("killed by SIGABRT", TERMINATED)):
        assert bool(differences(crashing, "attach", plain, watched)) == is_found
    strict = replace(crashing, crash_is_usual=False)
    assert differences(strict, "attach", ended("exit status 0"), ended("killed by SIGABRT", TERMINATED))


def test_every_kind_of_harm_of_the_stand_in_is_looked_for():
    sys.path.insert(0, str(HARMFUL))
    before = sys.modules.pop("gradvane", None)
    try:
        import gradvane

        assert set(gradvane.HARMS) == set(FOUND)
    finally:
        sys.path.remove(str(HARMFUL))
        sys.modules.pop("gradvane", None)
        if before is not None:
            sys.modules["gradvane"] = before


def test_the_page_lists_every_program_of_the_table():
    import make_doc

    page = (four_ways.HERE.parents[1] / "docs" / "harm.md").read_text()
    assert page == make_doc.document(), "write it again: python tests/harm/make_doc.py > docs/harm.md"


def test_of_what_cupti_keeps_two_descriptors_and_two_threads_are_excused_and_no_more():
    device = "/dev/nvidia0"
    plain = {"descriptors": [device, "socket"], "native threads": 4}

    def left(devices, threads, *others):
        descriptors = sorted([*plain["descriptors"], *[device] * devices, *others])
        return without_cupti(plain, {"descriptors": descriptors, "native threads": threads})

    assert left(2, 6) == plain
    assert left(3, 6)["descriptors"] == [device, device, "socket"]
    assert left(2, 7)["native threads"] == 5
    assert left(0, 6)["native threads"] == 6, "CUPTI was not started: the threads are ours"
    assert left(2, 6, "/dev/shm/left")["descriptors"] == [device, "/dev/shm/left", "socket"]
