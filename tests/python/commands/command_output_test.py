"""`gradvane status`, `top`, `replay` and `diff` as a user runs them: whole outputs of a real training and of wrong words,
in terminals of 80 and 200 columns and in a pipe, compared with expected/*.txt; numbers, with what torch itself said.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import running
from whole_outputs import MEDIA, Seen, Shell, expected, same_width, settled

LONG_END = ("--linger-incident-seconds", "300")  # the wait at the end is looked at on machines that are busy, too
FRAME_END = "\N{BOX DRAWINGS LIGHT ARC UP AND LEFT}"
POISONED = "blocks.1.self_attention.query_projection.weight"
WEIGHTS_ASKED_FOR = 60  # the step behind which the training waits until the incident is known


# All that may differ from one run to the next, or from one machine to another.
VARIES = [
    (r"(train|second), rank 0 of 1, on \S+\s+\(process\s+\d+\),\s+started\s+\S+\s+\S+\s+UTC",
     r"\1, rank 0 of 1, on HOST (process PID), started DATE TIME UTC"),  # its fold depends on the name of the host
    (r"torch \d\S*$", "torch VERSION"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "####-##-## ##:##:## UTC"),
    (r"http://127\.0\.0\.1:\d{5}", "http://127.0.0.1:#####"),
    same_width(r"steps / s +(\S+) *", "RATE"),
    (r"^  step time      .*$", "  step time      TIME (TIME to TIME)"),
    (r"^  step \d+: step time .*\n", ""),  # of a machine that was busy
    (r"(^    [AB] \d\.\d{9})\d+$", r"\1~"),  # every digit: torch's last ones are those of its vector unit
]


@dataclass
class SeenOfRuns(Seen):
    torch: dict[str, list[dict]] = field(default_factory=dict)
    """what torch said of each step of a run"""


class RunShell(Shell):
    def top(self, url: str, *, note: str) -> None:
        """In terminals, until Ctrl-C: the frame that was drawn there is what stays."""
        for medium in ("80_columns", "200_columns"):
            with self.terminal(medium, "top", url) as terminal:
                frame = terminal.wait_for(lambda text: text.rstrip().endswith(FRAME_END))
                assert terminal.screen.other, "a screen of its own"
                terminal.press("\x03")
                status = terminal.end()
                assert frame == terminal.screen.text()
                self.note_screen(medium, f"gradvane top {url}{note}", terminal, status)


class Training:
    """`gradvane run train.py`, which waits where it is told to."""

    def __init__(self, shell: RunShell, name: str, *words: str, options: tuple[str, ...] = ()) -> None:
        self._shell, self.name = shell, name
        self._out = shell.folder / f"{name}.json"
        self.process = subprocess.Popen(
            shell.command("run", "--port", "0", *LONG_END, *options, "train.py", str(self._out), *words),
            cwd=shell.folder, env=shell.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = re.search(r"http://127\.0\.0\.1:\d+", self.process.stderr.readline())[0]

    def status(self) -> dict:
        with urllib.request.urlopen(self.url + "/api/v1/status", timeout=20) as answer:
            return json.load(answer)

    def wait(self, is_so) -> None:
        """Until the agent, which is a thread of its own, has taken what the training did."""
        until = time.monotonic() + 60
        while not is_so(self.status()):
            assert time.monotonic() < until, self.status()
            time.sleep(0.02)

    def wait_behind(self, step: int) -> None:
        assert self.process.stdout.readline() == f"waiting after step {step}\n"
        self.wait(lambda status: status["latest"]["run_step"] == step)

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Its exit status; its recording lies beside it then, under its name."""
        self.process.communicate(timeout=60)
        self._shell.seen.torch[self.name] = json.loads(self._out.read_text())
        run = self._shell.folder / f"gradvane-{os.getuid()}"
        [recording] = (run / self.name).glob("*.step60.nonfinite_grad.gvrec")
        shutil.copy(recording, self._shell.folder / f"{self.name}.gvrec")
        return self.process.returncode


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Iterator[SeenOfRuns]:
    shell = RunShell(tmp_path_factory.mktemp("runs"), SeenOfRuns())
    shutil.copy(running.SCRIPTS / "named_layers.py", shell.folder / "train.py")
    (shell.folder / "a_text.gvrec").write_text("no recording\n")
    first = Training(shell, "train", "--poison", "one", "--wait", "50", "60", "70", "--fail")
    try:
        first.wait_behind(50)
        for command in ("status", "top", "replay", "diff"):
            shell.show(command, "--help")
        shell.show("status", first.url, note="  # all is well")
        shell.show("status", "--check", first.url, note="  # all is well")
        shell.top(first.url, note="  # all is well")
        first.go_on()
        first.wait_behind(WEIGHTS_ASKED_FOR)
        first.wait(lambda status: status["incidents_total"] == 1)
        first.go_on()
        first.wait_behind(70)
        shell.show("status", first.url, note="  # after a NaN")
        shell.show("status", "--check", first.url, note="  # after a NaN")
        shell.top(first.url, note="  # after a NaN")
        first.wait(lambda status: status["incidents"][0]["last_step"] == 70)
        shell.read("status", "--json", first.url)
        urllib.request.urlopen(first.url + "/metrics", timeout=20).read()  # who was scraped waits for one scrape more
        first.go_on()
        first.wait(lambda status: status["state"] == "failed")
        shell.show("status", first.url, note="  # while the end waits for a scrape")
        until_it_has_gone(shell, first)
    finally:
        first.process.kill()
    assert Training(shell, "second", "--poison", "all", "--late-rate", "0.05", options=("--run", "second")).end() == 0
    recordings(shell)
    wrong_words(shell, first.url)
    yield shell.seen


def is_asleep(process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None
    return Path(f"/proc/{process.pid}/syscall").read_text().startswith("230 ")  # clock_nanosleep of x86-64


def until_it_has_gone(shell: RunShell, training: Training) -> None:
    """`gradvane top` in each medium, while the run ends."""
    heading = f"gradvane top {training.url}  # until the agent has gone"
    with (shell.terminal("80_columns", "top", training.url) as narrow, shell.terminal("200_columns", "top", training.url) as wide,
          subprocess.Popen(shell.command("top", training.url), cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True) as piped):
        for top in (narrow, wide):
            top.wait_for(lambda text: text.rstrip().endswith(FRAME_END))
        while not is_asleep(piped):  # between two answers: in a pipe it shows the last one, at its end
            time.sleep(0.02)
        training.process.send_signal(signal.SIGINT)  # ends the wait
        assert training.end() == 1
        shell.note_screen("80_columns", heading, narrow, narrow.end())
        shell.note_screen("200_columns", heading, wide, wide.end())
        stdout, stderr = piped.communicate(timeout=60)
        shell.note_pipe(heading, stdout, stderr, piped.returncode)


def recordings(shell: Shell) -> None:
    shell.show("replay", "train.gvrec")
    shell.show("replay", "second.gvrec")
    shell.read("replay", "--json", "train.gvrec")
    shell.show("diff", "train.gvrec", "second.gvrec")
    shell.show("diff", "train.gvrec@60", "second.gvrec@60")
    shell.show("diff", "train.gvrec@65", "second.gvrec@65")
    shell.read("diff", "--json", "train.gvrec", "second.gvrec")


def wrong_words(shell: Shell, gone: str) -> None:
    for command in ("status", "top"):
        for words in ((gone,), ("file:///etc/hostname",), ("--colour",)):
            shell.show(command, *words)
    shell.show("top", "--every", "soon")
    for words in (("none.gvrec",), ("a_text.gvrec",), ("--colour", "train.gvrec"), ()):
        shell.show("replay", *words)
    for words in (("train.gvrec", "none.gvrec"), ("a_text.gvrec", "train.gvrec"), ("train.gvrec",),
                  ("train.gvrec@99", "second.gvrec"), ("--tolerance", "-1", "train.gvrec", "second.gvrec")):
        shell.show("diff", *words)


# ---- whole outputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("medium", MEDIA)
def test_every_line_is_the_one_that_was_read_and_found_good(seen, medium):
    shown = settled("".join(seen.transcripts[medium]), VARIES)
    assert shown.splitlines() == expected(f"commands_{medium}", shown)


# ---- numbers ---------------------------------------------------------------------------------------


def four(value: float) -> str:
    return f"{value:.4g}"


def section(seen: SeenOfRuns, medium: str, heading: str) -> str:
    [found] = [text for text in seen.transcripts[medium] if settled(text, VARIES).startswith(f"$ gradvane {heading}")]
    return found


def test_what_status_and_top_show_is_what_torch_computed(seen):
    step = seen.torch["train"][49]
    for heading in ("status http://127.0.0.1:#####  # all is well", "top http://127.0.0.1:#####  # all is well"):
        shown = dict(re.findall(r"^│ (loss|gradient norm) +(\S+) +│$", section(seen, "80_columns", heading), re.M))
        assert shown == {"loss": four(float(step["loss"])), "gradient norm": four(step["norm"])}
    table = re.findall(r"^│ (\S+) +(finite) +(\S+) +(\S+) +(\S+) % +(\S+) +│$",
                       section(seen, "200_columns", "top http://127.0.0.1:#####  # all is well"), re.M)
    worst = sorted(step["norms"], key=lambda name: -step["norms"][name])[:15]
    assert table == [(name, "finite", four(step["norms"][name]), four(step["largest"][name]),
                      four(100 * step["zeros"][name]), four(step["ratios"][name])) for name in worst]


def test_after_a_nan_no_norm_is_shown_for_there_is_none(seen):
    step = seen.torch["train"][69]
    every = sum(step["bad"].values())
    assert step["norm"] is None and step["loss"] == "nan"
    top = section(seen, "200_columns", "top http://127.0.0.1:#####  # after a NaN")
    assert f"gradient norm   –, without {every} of {every} elements that are not finite" in top
    assert top.count("nonfinite              –        –") == 15
    assert "grad_norm" not in seen.json["status"]["latest"]
    assert seen.json["status"]["incidents"][0]["steps"] == sum(any(s["bad"].values()) for s in seen.torch["train"])


def usual(run: list[dict], key: str, name: str) -> float:
    """The median of the logarithms of a history that ends 29 steps before step 60: half of what there is before it."""
    return math.exp(statistics.median(math.log(step[key][name]) for step in run[:30]))


def test_what_replay_says_was_normal_and_moved_is_what_torch_computed(seen):
    for name in ("train", "second"):
        told, run = seen.plain[f"gradvane replay {name}.gvrec"], seen.torch[name]
        for word, values in (("loss         ", [float(s["loss"]) for s in run[:59]]),
                             ("gradient norm", [s["norm"] for s in run[:59]])):
            low, middle, high = map(four, (min(values), statistics.median(values), max(values)))
            assert f"  {word}  {middle} ({low} to {high})\n" in told
        moved = "blocks.2.norm.weight"
        for word, key in (("gradient norm", "norms"), ("largest gradient", "largest")):
            value, before = run[58][key][moved], usual(run, key, moved)
            assert f"step 59: {word} of {moved} {four(value)}, usually {four(before)}, {value / before:.3g} times" in told
        assert run[69]["loss"] == "nan"
        assert f"  {sum(any(s['bad'].values()) for s in run[60:])} steps: 10 with values not finite; the last loss is NaN." in told
        assert POISONED not in told[told.index("What moved first"):told.index("What broke")], "no element left, no norm"


def apart(a: dict, b: dict) -> list[str]:
    """The ten numbers of gradients that are farthest apart, as diff words them."""
    found = []
    for name in a["norms"]:
        in_a, in_b = a["bad"][name], b["bad"][name]
        if in_a or in_b:
            far = abs(math.log(max(in_b, 1e-45)) - math.log(max(in_a, 1e-45)))
            times = f", {four(in_b / in_a)} times A" if in_a and in_b else ""
            found.append((far, f"{name}: gradient elements not finite A {in_a}, B {in_b}{times}"))
            continue
        for word, key in (("gradient norm", "norms"), ("largest gradient", "largest")):
            x, y = a[key][name], b[key][name]
            found.append((abs(math.log(y / x)), f"{name}: {word} A {four(x)}, B {four(y)}, {four(y / x)} times A"))
    return [words for far, words in sorted(found, key=lambda one: -one[0])[:10] if far]


@pytest.mark.parametrize(("heading", "step"), [("train.gvrec second.gvrec", 41), ("train.gvrec@60 second.gvrec@60", 60)])
def test_what_diff_says_is_farthest_apart_is_what_torch_computed(seen, heading, step):
    told = seen.plain[f"gradvane diff {heading}"]
    a, b = seen.torch["train"], seen.torch["second"]
    parted = next(i for i, (x, y) in enumerate(zip(a, b), 1) if x["loss"] != y["loss"])
    assert parted == 41
    assert f"first different bit: step {parted}, loss\n    A {a[40]['loss']}\n    B {b[40]['loss']}\n" in told
    lines = [line.strip() for line in told[told.index("  parameters\n"):].splitlines()[1:]]
    assert lines == apart(a[step - 1], b[step - 1])


# ---- for programs ----------------------------------------------------------------------------------


def test_replay_tells_programs_the_same(seen):
    told, text = seen.json["replay"], seen.plain["gradvane replay train.gvrec"]
    assert told["fault_step"] == 60 and told["steps"]["count"] == 70
    for word, key in (("loss         ", "loss"), ("gradient norm", "grad_norm")):
        spread = told["normal"][key]
        assert f"{word}  {four(spread['median'])} ({four(spread['low'])} to {four(spread['high'])})" in text
    assert len(told["moved"]) >= 4
    for moved in told["moved"]:
        if moved["what"] != "step time":
            of = f" of group {moved['group']}" if "group" in moved else f" of {moved['param']}"
            assert f"step {moved['run_step']}: {moved['what']}{of} {four(moved['value'])}, usually {four(moved['usual'])}" in text
    assert told["incident"]["evidence"] in text and told["ending"]["sentence"] in text
    assert told["after"] == {"steps": 10, "nonfinite": 10, "skipped": 0, "last_loss": "nan"}
    assert told["weights"] == {"found_nonfinite": 61, "last_finite": 50}


def test_diff_tells_programs_the_same(seen):
    told, text = seen.json["diff"], seen.plain["gradvane diff train.gvrec second.gvrec"]
    for key, words in (("first_different_rate", "first different setting of the optimizer"),
                       ("first_different_bit", "first different bit"),
                       ("first_beyond_tolerance", "first beyond 0.001 of its size")):
        one = told[key]
        assert f"{words}: step {one['run_step']}, {one['what']}\n    A {one['a']!r}\n    B {one['b']!r}\n" in text
    for one in told["groups"] + told["params"]:
        assert f"{one['name']}: {one['what']} A {four(one['a'])}, B {four(one['b'])}" in text
    assert told["settings"] == [{"key": "run", "a": "train", "b": "second"}]


def test_wrong_words_say_nothing_on_the_standard_output(seen):
    wrong = [heading for heading, said in seen.plain.items() if not said]
    assert len(wrong) == sum("[exit status 2]" in text for text in seen.transcripts["pipe"]) == 15
