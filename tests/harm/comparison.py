"""What differs between a plain run of a program and a watched one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from four_ways import OURS, Outcome
from program import Program

LEFT_AT_A_GOOD_END = 64 * 1024
"""bytes that our run directory may hold after a program that ended well"""

ON_PURPOSE = {
    "lines on the standard error": f"those that begin with `{OURS.strip()}`",
    "the run directory": "where a run is found while it lives; after a good end at most "
                         f"{LEFT_AT_A_GOOD_END // 1024} KiB are left, and the recordings of incidents",
    "descriptors, while the agent lives": "the endpoint's sockets and the files of the run directory",
    "threads, while the agent lives": "those called gradvane-...",
    "SIGTERM, while the agent lives": "a handler, where there was none: it exports the last steps, and then the "
                                      "process dies by the signal",
}
"""What all programs may show, as docs/harm.md says it."""

SURPLUS = {
    "descriptors": ("socket", "anon_inode:", "<folder>/tmp/gradvane-", "/tmp/gradvane-"),
    "threads": ("gradvane-",),
}
"""How those begin that a live agent may have besides."""
MOST_THREADS = 8
LEFT_BY_CUPTI = 2
"""descriptors of a device, and threads: CUPTI keeps them until the process ends, torch's profiler leaves the same"""


def differences(program: Program, way: str, plain: Outcome, watched: Outcome, name: str | None = None) -> list[str]:
    """Sentences, none where nobody could tell the two apart. `name`: one program of those that share the process."""
    found = []
    if failed := [line for line in section(plain.stdout, name) if line.startswith("raised ")]:
        found.append(f"the plain program does not work: {failed}")
    ended_well = watched.end == "exit status 0"
    if program.crash_is_usual:
        plain, watched = without_crash(plain, program), without_crash(watched, program)
    single = {
        "end": (plain.end, watched.end),
        "processes left behind": (plain.survivors, watched.survivors),
        "standard output": (section(plain.stdout, name), section(watched.stdout, name)),
        "standard error": (section(plain.stderr, name), section(watched.stderr, name)),
        "files": (plain.files, watched.files),
    }
    for what, (expected, seen) in single.items():
        if expected != seen and what not in program.differs:
            found.append(f"{what}: {told(expected, seen)}")
    left = sum(size for name, size in watched.run_directory.items() if not is_of_an_incident(name, watched))
    if ended_well and left > LEFT_AT_A_GOOD_END and "the run directory" not in program.differs:
        found.append(f"the run directory: {left} bytes are left: {watched.run_directory}")
    expected_looks, seen_looks = looks(plain, name), looks(watched, name)
    if [look["look"] for look in expected_looks] != [look["look"] for look in seen_looks]:
        found.append(f"looks: {told([one['look'] for one in expected_looks], [one['look'] for one in seen_looks])}")
        return found
    for expected, seen in zip(expected_looks, seen_looks):
        if program.counts_syncs:
            seen = without_cupti(expected, seen)
        for what in expected:
            if what not in program.differs and not same(what, expected[what], seen[what], way, program):
                found.append(f"{what}, at {expected['look']!r}: {told(expected[what], seen[what])}")
    return found


def without_crash(outcome: Outcome, program: Program) -> Outcome:
    """As if a run that torch crashed in its usual way had ended well."""
    if outcome.end != "killed by SIGABRT" or program.crash_by_chance not in outcome.stderr:
        return outcome
    said = [line for line in outcome.stderr if line != program.crash_by_chance]
    return replace(outcome, end="exit status 0", stderr=said)


def is_of_an_incident(file: str, watched: Outcome) -> bool:
    """A recording, or the ring, which stays if an incident is open at the end. Which incidents a training has depends on
    the time that it gets: on a busy machine the agent costs much, and steps come faster than they can be read."""
    recordings = [name for name in watched.run_directory if re.search(r"\.step\d+\.\w+\.gvrec$", name)]
    return file in recordings or bool(recordings) and file.endswith(".ring.gvrec")


def was_watched(program: Program, plain: Outcome, watched: Outcome) -> bool:
    """By a line of ours; without one there is nothing to compare."""
    return bool(watched.said) or not plain.looks or program.place.stdout != "file"


def section(lines: list[str], name: str | None) -> list[str]:
    """The lines of one program among several."""
    if name is None:
        return lines
    inside = False
    kept = []
    for line in lines:
        if line.startswith("== "):
            inside = line == f"== {name}"
        elif inside:
            kept.append(line)
    return kept


def looks(outcome: Outcome, name: str | None) -> list[dict]:
    return [look for look in outcome.looks if name is None or look["look"] == name]


def same(what: str, expected: object, seen: object, way: str, program: Program) -> bool:
    if what == "weights" and program.weights_within:
        return close(expected, seen, program.weights_within)
    if expected == seen:
        return True
    if way == "attach, detach":
        return what == "native threads" and seen <= expected  # type: ignore[operator]
    if what in SURPLUS:
        more = surplus(expected, seen)  # type: ignore[arg-type]
        return more is not None and all(one.startswith(SURPLUS[what]) for one in more)
    if what == "native threads":
        return 0 <= seen - expected <= MOST_THREADS  # type: ignore[operator]
    if what == "signals":
        caught = surplus(expected["SigCgt"], seen["SigCgt"])  # type: ignore[index]
        others = all(expected[key] == seen[key] for key in ("SigBlk", "SigIgn"))  # type: ignore[index]
        return others and caught is not None and set(caught) <= {"SIGTERM"}
    return False


def without_cupti(expected: dict, seen: dict) -> dict:
    """A look as if CUPTI had given back what it keeps: all of it, or nothing is taken off."""
    more = surplus(expected["descriptors"], seen["descriptors"]) or []
    devices = [one for one in more if re.fullmatch(r"/dev/nvidia\d+", one)]
    if len(devices) < LEFT_BY_CUPTI or seen["native threads"] < expected["native threads"] + LEFT_BY_CUPTI:
        return seen
    kept = list(seen["descriptors"])
    for one in devices[:LEFT_BY_CUPTI]:
        kept.remove(one)
    return {**seen, "descriptors": kept, "native threads": seen["native threads"] - LEFT_BY_CUPTI}


def surplus(expected: list, seen: list) -> list | None:
    """What `seen` has besides; None where something is missing."""
    more, less = Counter(seen) - Counter(expected), Counter(expected) - Counter(seen)
    return None if less else list(more.elements())


def close(expected: object, seen: object, within: float) -> bool:
    if isinstance(expected, list) and isinstance(seen, list):
        return len(expected) == len(seen) and all(close(a, b, within) for a, b in zip(expected, seen))
    try:
        a, b = float(expected), float(seen)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return expected == seen
    return abs(a - b) <= within * max(abs(a), abs(b), 1e-3) or expected == seen


def told(expected: object, seen: object) -> str:
    """Only the parts that differ."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        keys = [key for key in {**expected, **seen} if expected.get(key) != seen.get(key)]
        return "; ".join(f"{key}: {told(expected.get(key), seen.get(key))}" for key in keys)
    if isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen) and len(expected) > 1:
        at = next((i for i, pair in enumerate(zip(expected, seen)) if pair[0] != pair[1]), 0)
        return f"[{at}] {told(expected[at], seen[at])}"
    if isinstance(expected, list) and isinstance(seen, list):
        plain, watched = Counter(map(repr, expected)), Counter(map(repr, seen))
        return f"watched has besides {dict(watched - plain)}, plain has besides {dict(plain - watched)}"
    return f"plain {expected!r:.300}, watched {seen!r:.300}"
