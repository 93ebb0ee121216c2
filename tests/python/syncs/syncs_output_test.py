"""`gradvane syncs` as a user runs it: whole outputs of a training whose waits are known and of programs that are none, in
terminals of 80 and 200 columns and in a pipe, compared with expected/syncs_*.txt; what --json says of the same."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import planted
import pytest
import running
from whole_outputs import MEDIA, Seen, Shell, expected, settled

TRAIN = ("--", "python", "train.py")
WAITS = """\
    #!/usr/bin/env python
    import ctypes, os, sys, time
    cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
    if sys.argv[1:2] == ["--taken-by"]:
        cuda.fake_take_by(sys.argv[2].encode())
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    for _ in range(3):
        cuda.fake_synchronize(2_000)
    if sys.argv[1:] == ["--die"]:
        time.sleep(2.5)  # what is there is said once a second
        os.kill(os.getpid(), 9)
"""


def in_one_line(found: re.Match[str]) -> str:
    """Where a sentence with a time or a process id is folded depends on how many digits that has."""
    return re.sub(r"\n +", " ", found[0])


def as_wide(instead: str):
    return lambda found: instead.rjust(len(found[0]))


VARIES = [
    (r"^(?:gradvane syncs: )?(?:\w+, pid \d+: |in no step: |no process left ).*(?:\n  (?! |site\b).*)*", in_one_line),
    (r"^(?:\[stderr\] )?not counted: .* that were counted\n", ""),  # on a machine that was busy
    (r"pid \d+", "pid PID"),
    (r"[\d.]+ (?:us|ms|s)(?=$|;| in all)", "TIME"),
    (r" *[\d.]+ (?:us|ms|s)(?= +(?:< )?[\d.]+ %$)", as_wide("TIME")),
    (r" *(?:< )?[\d.]+ %$", as_wide("SHARE")),
    (r"load \S+/libgradvane_inject\.so", "load LIBRARY"),
]


def shell(folder: Path, seen: Seen, medium: str, *, cuda: bool = True) -> Shell:
    fake = {name: planted.ways("injected")[name] for name in ("FAKE_CUDA", "LD_LIBRARY_PATH", "GRADVANE_SYNC_LIBRARY")}
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    made = Shell(folder, seen, PATH=path, **(fake if cuda else {}))
    own = folder / f"temporary-{medium}"  # the media run at once, and a second run of one script gets another name
    own.mkdir(exist_ok=True)
    made.env["TMPDIR"] = str(own)
    return made


def trainings(folder: Path, seen: Seen, medium: str) -> None:
    at = shell(folder, seen, medium)
    at.show("syncs", *TRAIN, media=(medium,))
    if medium == "80_columns":
        at.show("syncs", "--budget", "2", "--top", "3", "--fail", *TRAIN, media=(medium,))
        at.show("syncs", "--budget", "1", "--fail", *TRAIN, media=(medium,))
    if medium == "pipe":
        shell(folder, seen, medium, cuda=False).show(
            "syncs", "--budget", "1", "--fail", *TRAIN, "--no-cuda", note="  # on a machine without CUDA", media=(medium,))
        at.read("syncs", "--json", "--budget", "1", *TRAIN)


def other_programs(folder: Path, seen: Seen, medium: str) -> None:
    at = shell(folder, seen, medium)
    held = ("--budget", "1", "--fail")
    commands = [("./waits",), (*held, "./waits"), (*held, "./waits", "--taken-by", "nsys"), ("--help",), (), ("--fail", "true"),
                ("--budget", "few", "true"), ("./none",)]
    if medium == "80_columns":
        commands += [("./waits", "--die"), ("sh", "both.sh")]
    else:  # the path of this checkout may be wider than 80 columns
        commands += [(*held, "true")]
    for words in commands:
        at.show("syncs", *words, media=(medium,))


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Seen:
    folder, seen = tmp_path_factory.mktemp("programs"), Seen()
    shutil.copy(running.SCRIPTS / "waiting.py", folder / "train.py")
    running.write(folder, WAITS, "waits").chmod(0o755)
    running.write(folder, "./waits & ./waits; wait", "both.sh")

    def everything(medium: str) -> None:
        trainings(folder, seen, medium)
        other_programs(folder, seen, medium)

    with ThreadPoolExecutor() as media:  # a program waits most of its time: for its parts to load, and for us
        list(media.map(everything, MEDIA))
    return seen


@pytest.mark.parametrize("medium", MEDIA)
def test_every_line_is_the_one_that_was_read_and_found_good(seen, medium):
    shown = settled("".join(seen.transcripts[medium]), VARIES)
    assert shown.splitlines() == expected(f"syncs_{medium}", shown)


def test_programs_are_told_the_same(seen):
    [document] = seen.json["syncs"]
    jsonschema.Draft202012Validator(planted.SCHEMA).validate(document)
    table, judged = (next(text for text in seen.transcripts[medium] if text.startswith(f"$ gradvane syncs {words}train.py"))
                     for medium, words in (("pipe", "-- python "), ("80_columns", "--budget 1 --fail -- python ")))
    whole = document["whole_steps"]
    tallies: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for site in document["sites"]:  # a row for each phase, in one of the table
        of = tallies[f"{site['location']} {site['function']}", site["kind"]]
        of[0] += site["calls"]
        of[1] += site["calls_in_steps"]
    assert {(row.site, row.kind): (row.calls, row.per_step) for row in planted.rows(table.replace("[stderr] ", ""))} == {
        (place.split()[0], kind): (calls, float(f"{in_steps / whole:.4g}")) for (place, kind), (calls, in_steps) in tallies.items()}
    assert len(tallies) == 6 and all(f"  {place} " in table for place, _ in tallies)
    calls = sum(tally["calls"] for tally in document["totals"]["training"].values())
    parts = {part: document["parts"][part]["calls"] for part in document["parts"]}
    a_step = f"{parts['in_steps'] / whole:.4g}"
    assert calls == sum(parts.values())
    assert f": {document['steps']} steps, {calls} host syncs, {a_step} per step, the CPU blocked" in table
    assert re.search(rf"in no step: {parts['start_up']} before the first step ended, [^;]+; {parts['between_steps']} between steps and "
                     rf"after the last, [^;]+; {parts['other_threads']} by threads that do not train, ", table)
    most = document["most_in_step"]
    assert (f"over the budget of {document['budget']} per step: {document['steps_over']['training']} steps had more, at most "
            f"{most['calls']} in step {most['run_step']}\n") in judged
